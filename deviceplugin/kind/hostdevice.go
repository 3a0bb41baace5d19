package kind

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/capabilities/hostdevice"
	"github.com/vmlet/vmlet/capabilities/hostdevice/finder"
	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/hypervisor/device"
	"github.com/vmlet/vmlet/internal/inotify"
	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
)

// HostDevice offers devices of the host that an administrator permits to be given
// to guests, under one resource.
type HostDevice struct {
	resource  string
	permitted hostdevice.Permitted
	roots     sysfs.Roots
	hosts     *Hosts
	// list makes devices of what is ready.
	list func(d *HostDevice, host *sysfs.Host, all []finder.Resource, ready []string) []deviceplugin.Device
	// prefix of the variable that names the devices to the container.
	prefix string
	// cdi is VENDOR/CLASS; empty: device nodes are given.
	cdi string
}

// newHostDevice offers what is permitted under one resource. All that is
// permitted must be given, because resources share IOMMU groups.
func newHostDevice(r finder.Resource, permitted hostdevice.Permitted, roots sysfs.Roots, hosts *Hosts, cdi string) *HostDevice {
	d := &HostDevice{resource: r.Name, permitted: permitted, roots: roots, hosts: hosts, cdi: cdi}
	switch r.Kind {
	case finder.KindPCI:
		d.list, d.prefix = (*HostDevice).pci, "PCI_RESOURCE_"
	case finder.KindMediated:
		d.list, d.prefix = (*HostDevice).mediated, "MDEV_PCI_RESOURCE_"
	case finder.KindUSB:
		d.list, d.prefix = (*HostDevice).usb, "USB_RESOURCE_"
	}
	return d
}

// Resource is what pods ask for.
func (d *HostDevice) Resource() string { return d.resource }

// Interests are the folders of device nodes. What is bound to VFIO, made or
// plugged in gets a node there.
func (d *HostDevice) Interests() []inotify.Interest {
	if d.prefix != "USB_RESOURCE_" {
		vfio := d.roots.DevPath("vfio")
		return []inotify.Interest{{Path: vfio, Inside: "*"}, {Path: filepath.Join(vfio, "devices"), Inside: "*"}}
	}
	usb := d.roots.DevPath("bus", "usb")
	all := []inotify.Interest{{Path: usb, Inside: "*"}}
	buses, _ := filepath.Glob(filepath.Join(usb, "[0-9][0-9][0-9]")) // none: the folder is watched
	for _, bus := range buses {
		all = append(all, inotify.Interest{Path: bus, Inside: "*"})
	}
	return all
}

// Find reads the machine.
func (d *HostDevice) Find(context.Context) []deviceplugin.Device {
	host := d.hosts.Read()
	all := finder.Find(d.permitted, host)
	for _, r := range all {
		if r.Name == d.resource {
			return d.list(d, host, all, r.Ready)
		}
	}
	return nil
}

// variable is KubeVirt's name for it: PCI_RESOURCE_NVIDIA_COM_T4.
func (d *HostDevice) variable() string {
	return d.prefix + strings.ToUpper(strings.NewReplacer("/", "_", ".", "_").Replace(d.resource))
}

// grant gives device nodes, by their paths below /dev, or the device of the
// container device interface that has the name.
func (d *HostDevice) grant(value, name string, nodes []string) *deviceplugin.Grant {
	g := &deviceplugin.Grant{Variable: d.variable(), Value: value}
	if d.cdi != "" {
		g.CDI = []string{d.cdi + "=" + name}
		return g
	}
	for _, n := range nodes {
		g.Nodes = append(g.Nodes, filepath.Join("/dev", n))
	}
	return g
}

// obstacle says which of the nodes can't be used. They are not opened: a VFIO
// group can be open once only, so that would take it from a guest that starts
// just now, and a USB device would wake.
func (d *HostDevice) obstacle(nodes []string) string {
	for _, n := range nodes {
		path := d.roots.DevPath(n)
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		switch {
		case err != nil:
		case st.Mode&unix.S_IFMT != unix.S_IFCHR:
			return path + " is not a character device: remove it and let the kernel make the device"
		default:
			err = unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.W_OK, unix.AT_EACCESS)
		}
		if err != nil {
			return device.Failed(path, device.Errno(err), "").Reason
		}
	}
	return ""
}

// ascending returns the numbers, each once.
func ascending(numbers []int) []int {
	numbers = slices.Clone(numbers)
	slices.Sort(numbers)
	return slices.Compact(numbers)
}
