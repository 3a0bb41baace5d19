package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tunDevice is what taps are opened through (Documentation/networking/tuntap).
const tunDevice = "/dev/net/tun"

// TapRequest says which tap a VM's interface gets.
type TapRequest struct {
	// Device is the name of one that is there; empty: one is made, which the
	// kernel removes when its last descriptor is closed.
	Device string
	// Bridge that a made one is attached to; empty: none.
	Bridge string
	// MAC of the guest's side.
	MAC string
	// Owner is noted with one that is made, for RemoveTaps.
	Owner string
}

// OpenTap opens a tap for a VMM. The file is the caller's.
func OpenTap(r TapRequest) (f *os.File, name string, err error) {
	if r.Device != "" {
		if _, err := netlink.LinkByName(r.Device); isNotFound(err) {
			return nil, "", fmt.Errorf("tap %q: there is none: make it (ip tuntap add %s mode tap vnet_hdr), or leave the name out to have one made", r.Device, r.Device)
		} else if err != nil {
			return nil, "", fmt.Errorf("tap %q: %w", r.Device, err)
		}
	}
	name = r.Device
	if name == "" {
		name = "vmlet%d" // the kernel puts a free number in
	}
	f, name, err = attachTap(name)
	if err != nil || r.Device != "" {
		return f, name, err
	}
	if err := setUpTap(name, r); err != nil {
		return nil, "", errors.Join(fmt.Errorf("tap %s: %w", name, err), f.Close())
	}
	return f, name, nil
}

// attachTap opens a tap by TUNSETIFF (linux/if_tun.h), without a header of
// packet information and with that of virtio, which QEMU takes.
func attachTap(name string) (*os.File, string, error) {
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w: load the module tun", tunDevice, err)
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		unix.Close(fd)
		hint := ""
		if errors.Is(err, unix.EBUSY) {
			hint = ": another program, or another VM, has it open"
		}
		return nil, "", fmt.Errorf("tap %q: TUNSETIFF: %w%s", name, err, hint)
	}
	return os.NewFile(uintptr(fd), tunDevice), req.Name(), nil
}

func setUpTap(name string, r TapRequest) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetAlias(link, r.Owner); err != nil {
		return fmt.Errorf("noting whose it is: %w", err)
	}
	if mac := hostMAC(r.MAC); mac != nil {
		if err := netlink.LinkSetHardwareAddr(link, mac); err != nil {
			return fmt.Errorf("setting its address %s: %w", mac, err)
		}
	}
	if r.Bridge != "" {
		bridge, err := netlink.LinkByName(r.Bridge)
		if isNotFound(err) {
			return fmt.Errorf("bridge %q: there is none: make it (ip link add %s type bridge), or name one that is there", r.Bridge, r.Bridge)
		} else if err != nil {
			return fmt.Errorf("bridge %q: %w", r.Bridge, err)
		}
		if bridge.Type() != "bridge" {
			return fmt.Errorf("bridge %q: it is not a bridge but of type %s", r.Bridge, bridge.Type())
		}
		if err := netlink.LinkSetMTU(link, bridge.Attrs().MTU); err != nil {
			return fmt.Errorf("setting the MTU of bridge %s, %d: %w", r.Bridge, bridge.Attrs().MTU, err)
		}
		if err := netlink.LinkSetMaster(link, bridge); err != nil {
			return fmt.Errorf("attaching it to bridge %q: %w", r.Bridge, err)
		}
	}
	return netlink.LinkSetUp(link)
}

// RemoveTaps deletes what there still is of the taps that were made for an owner. A tap
// goes with its last descriptor, unless its holder, a VMM that was taken over, has the
// kernel keep it (TUNSETPERSIST, which needs no right).
func RemoveTaps(owner string) error {
	links, err := links()
	if err != nil {
		return fmt.Errorf("looking for taps: %w", err)
	}
	var errs []error
	for _, link := range links {
		if link.Type() != "tuntap" || link.Attrs().Alias != owner || owner == "" {
			continue
		}
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("removing tap %s: %w", link.Attrs().Name, err))
		}
	}
	return errors.Join(errs...)
}

// TapNote is how a tap of the administrator's was before a VM had it. Its VMM may change
// that by the tap's descriptor, which takes no right.
type TapNote struct {
	Device string `json:"device"`
	// Owner and Group are who alone may attach to the tap without CAP_NET_ADMIN; -1 was
	// never set.
	Owner int64 `json:"owner"`
	Group int64 `json:"group"`
	// Persistent: the tap stays when nobody has it open.
	Persistent bool `json:"persistent,omitempty"`
}

// NoteTap reads how a tap is, from sysfs (drivers/net/tun.c). The error wraps
// fs.ErrNotExist if it is no tap, or not there.
func NoteTap(device string) (TapNote, error) {
	owner, errOwner := tapAttribute(device, "owner")
	group, errGroup := tapAttribute(device, "group")
	flags, errFlags := tapAttribute(device, "tun_flags")
	return TapNote{device, owner, group, flags&unix.IFF_PERSIST != 0}, errors.Join(errOwner, errGroup, errFlags)
}

func tapAttribute(device, name string) (int64, error) {
	path := filepath.Join("/sys/class/net", filepath.Base(device), name)
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("tap %q: %w", device, err)
	}
	value, err := strconv.ParseInt(strings.TrimSpace(string(content)), 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return value, nil
}

// RestoreTap has a tap be again as it was noted. Nobody may have it open. The kernel takes
// no owner or group away (TUNSETOWNER of -1 is EINVAL): instead of nobody it is root's. The
// error is a netlink.LinkNotFoundError if the tap is not there.
func RestoreTap(was TapNote) error {
	if _, err := netlink.LinkByName(was.Device); err != nil {
		return fmt.Errorf("tap %q: %w", was.Device, err)
	}
	now, err := NoteTap(was.Device)
	if err == nil && now == was {
		return nil
	}
	f, _, err := attachTap(was.Device)
	if err != nil {
		return err
	}
	defer f.Close()
	set := func(name string, request uint, value int64) error {
		if err := unix.IoctlSetInt(int(f.Fd()), request, int(value)); err != nil {
			return fmt.Errorf("tap %q: %s %d: %w", was.Device, name, value, err)
		}
		return nil
	}
	if now.Owner != was.Owner {
		err = set("TUNSETOWNER", unix.TUNSETOWNER, max(was.Owner, 0))
	}
	if now.Group != was.Group {
		err = errors.Join(err, set("TUNSETGROUP", unix.TUNSETGROUP, max(was.Group, 0)))
	}
	persistent := int64(0)
	if was.Persistent {
		persistent = 1
	}
	return errors.Join(err, set("TUNSETPERSIST", unix.TUNSETPERSIST, persistent))
}

// links lists the interfaces, once more if others have come or gone meanwhile: the kernel
// says then that some may be missing (NLM_F_DUMP_INTR).
func links() (all []netlink.Link, err error) {
	for deadline := soon(); ; {
		if all, err = netlink.LinkList(); !errors.Is(err, netlink.ErrDumpInterrupted) || time.Now().After(deadline) {
			return all, err
		}
	}
}

// isNotFound: there is no interface of that name.
func isNotFound(err error) bool { return errors.As(err, new(netlink.LinkNotFoundError)) }

// hostMAC is the guest's address with a first byte of 0xfe: a bridge takes the
// lowest of its ports' addresses for its own, and so never a VM's.
func hostMAC(guest string) net.HardwareAddr {
	mac, err := net.ParseMAC(guest)
	if err != nil || len(mac) != 6 {
		return nil
	}
	mac[0] = 0xfe
	return mac
}
