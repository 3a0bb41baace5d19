package nodedevice

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/device"
	hypervisors "github.com/vmlet/vmlet/hypervisor/standard/probe"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
)

// drivers answers each question as the driver of that device does, and any other with ENOTTY. Which device a descriptor is of
// can't be told from /dev/null, which stands for all of them, so the requests must differ.
type drivers struct{ broken map[uintptr]error }

func (d drivers) Call(_ int, request, arg uintptr) (int, error) {
	if err := d.broken[request]; err != nil {
		return -1, err
	}
	switch {
	case arg != 0:
		return -1, unix.EINVAL
	case request == 0xAE00: // KVM_GET_API_VERSION
		return 12, nil
	case request == 0x3B64: // VFIO_GET_API_VERSION
		return 0, nil
	}
	return -1, unix.ENOTTY
}

func (d drivers) Fill(_ int, request uintptr, buf []byte, links ...device.Link) (int, error) {
	if err := d.broken[request]; err != nil {
		return -1, err
	}
	// TUNGETFEATURES and VHOST_GET_FEATURES, as strace prints them.
	sizes := map[uintptr]int{0x800454CF: 4, 0x8008AF00: 8}
	switch size, known := sizes[request]; {
	case !known:
		return -1, unix.ENOTTY
	case len(buf) != size || len(links) != 0:
		return -1, unix.EFAULT
	}
	return 0, nil
}

// known are the hypervisors whose devices are tried, too.
func known() []hypervisor.Hypervisor { return hypervisors.Hypervisors(sysfs.Roots{}).All() }

// tree makes a /dev in which everything is a link to the null device.
func tree(t *testing.T) string {
	t.Helper()
	dev := t.TempDir()
	for _, n := range nodes(known()) {
		path := filepath.Join(dev, n.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/dev/null", path); err != nil {
			t.Fatal(err)
		}
	}
	return dev
}

func byName(found []*capabilitiesv1.DeviceCapability) map[string]*capabilitiesv1.DeviceCapability {
	m := map[string]*capabilitiesv1.DeviceCapability{}
	for _, c := range found {
		m[c.Name] = c
	}
	return m
}

func TestWorks(t *testing.T) {
	dev := tree(t)
	found := discover(t.Context(), sysfs.Roots{Dev: dev}, known(), drivers{})
	if len(found) != len(nodes(known())) {
		t.Fatalf("%d devices, want %d", len(found), len(nodes(known())))
	}
	for _, c := range found {
		if c.State != capabilitiesv1.State_STATE_WORKS || c.Reason != "" || c.Errno != "" || !strings.HasPrefix(c.Path, dev) {
			t.Errorf("%v", c)
		}
	}
}

// The null device answers no question, so that those with a question are told from it.
func TestAnotherDevice(t *testing.T) {
	for name, c := range byName(Discover(t.Context(), sysfs.Roots{Dev: tree(t)}, known())) {
		asked := name != "mshv" && name != "iommufd" && name != "sev"
		if (c.State == capabilitiesv1.State_STATE_UNUSABLE) != asked || asked && (c.Errno != "ENOTTY" || c.Remedy == "") {
			t.Errorf("%v", c)
		}
	}
}

func TestAbsent(t *testing.T) {
	found := byName(Discover(t.Context(), sysfs.Roots{Dev: t.TempDir()}, known()))
	for name, remedy := range map[string]string{
		"kvm": "kvm_intel", "mshv": "mshv_root", "tun": "modprobe tun", "vhost-net": "modprobe vhost_net",
		"vhost-vsock": "modprobe vhost_vsock", "vfio": "modprobe vfio", "iommufd": "modprobe iommufd", "sev": "modprobe ccp",
	} {
		c := found[name]
		if c.GetState() != capabilitiesv1.State_STATE_ABSENT || c.Errno != "ENOENT" || !strings.Contains(c.Remedy, remedy) || !strings.Contains(c.Remedy, "container") {
			t.Errorf("%s: %v", name, c)
		}
	}
}

// What lies in the devices' place is never waited for, read or taken for one.
func TestNoDevices(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"pipe":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"file":   func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"loop":   func(path string) error { return os.Symlink(path, path) },
	} {
		t.Run(name, func(t *testing.T) {
			dev := t.TempDir()
			for _, n := range nodes(known()) {
				path := filepath.Join(dev, n.path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := make(path); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range discover(t.Context(), sysfs.Roots{Dev: dev}, known(), drivers{}) {
				if c.State != capabilitiesv1.State_STATE_UNUSABLE || c.Reason == "" || c.Errno == "" {
					t.Errorf("%v", c)
				}
			}
		})
	}
}

// A driver that answers ENODEV has a device node that is there all the same.
func TestDriverFails(t *testing.T) {
	broken := drivers{map[uintptr]error{0x8008AF00: unix.ENODEV}}
	for name, c := range byName(discover(t.Context(), sysfs.Roots{Dev: tree(t)}, known(), broken)) {
		vhost := strings.HasPrefix(name, "vhost-")
		if (c.State == capabilitiesv1.State_STATE_UNUSABLE) != vhost || vhost && (c.Errno != "ENODEV" || !strings.Contains(c.Reason, "VHOST_GET_FEATURES")) {
			t.Errorf("%v", c)
		}
	}
}

func TestGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	for _, c := range discover(ctx, sysfs.Roots{Dev: tree(t)}, known(), hanging{release}) {
		asked := c.Name != "mshv" && c.Name != "iommufd" && c.Name != "sev"
		if asked && (c.State != capabilitiesv1.State_STATE_UNUSABLE || !strings.Contains(c.Reason, "didn't answer")) {
			t.Errorf("%v", c)
		}
	}
}

type hanging struct{ release chan struct{} }

func (h hanging) Call(int, uintptr, uintptr) (int, error) { <-h.release; return 0, nil }

func (h hanging) Fill(int, uintptr, []byte, ...device.Link) (int, error) { <-h.release; return 0, nil }

// On this machine what can be opened by hand works.
func TestReal(t *testing.T) {
	for _, c := range Discover(t.Context(), sysfs.Roots{}, known()) {
		t.Log(c)
		f, err := os.OpenFile(c.Path, os.O_RDWR, 0)
		if err == nil {
			f.Close()
		}
		if (err == nil) != (c.State == capabilitiesv1.State_STATE_WORKS) {
			t.Errorf("%v, and opening it: %v", c, err)
		}
	}
}
