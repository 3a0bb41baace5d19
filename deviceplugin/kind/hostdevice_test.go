package kind

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/capabilities/hostdevice"
	"github.com/vmlet/vmlet/capabilities/hostdevice/finder"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/internal/resourcename"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/sysfs/sysfstest"
)

const mdev = "c0000000-0000-4000-8000-00000000000"

// machine has two GPUs with a sound function each, of which one group has
// functions of two nodes, a card with virtual functions, mediated devices and USB.
func machine(t *testing.T) (*sysfstest.Tree, sysfs.Roots) {
	t.Helper()
	// On disk: /dev/shm may be mounted without devices.
	tree := sysfstest.Machine{Packages: 2, Cores: 2, Caches: []sysfstest.Cache{}}.SplitNodes(2, 1<<30).WriteTo(t, t.TempDir())
	pci := func(address, group string, node int, vendor, device uint16) string {
		return tree.PCI(sysfstest.PCI{Address: address, Vendor: vendor, Device: device, Driver: "vfio-pci", Group: group, Node: node})
	}
	pci("0000:01:00.0", "1", 0, 0x10de, 0x1eb8)
	pci("0000:01:00.1", "1", 1, 0x10de, 0x10f8)
	pci("0000:81:00.0", "2", 1, 0x10de, 0x1eb8)
	pci("0000:81:00.1", "2", 1, 0x10de, 0x10f8)
	pci("0000:82:00.0", "3", -1, 0x8086, 0x1533)
	parent := tree.PCI(sysfstest.PCI{Address: "0000:41:00.0", Vendor: 0x10de, Device: 0x2236, Driver: "nvidia", Node: 1})
	tree.MediatedType(parent, "nvidia-222", "GRID T4-1Q", 4)
	for i := range 2 {
		uuid := fmt.Sprint(mdev, i)
		folder := parent + "/" + uuid
		tree.Folder(folder)
		tree.Link(folder+"/mdev_type", parent+"/mdev_supported_types/nvidia-222")
		tree.Link("sys/bus/mdev/devices/"+uuid, folder)
		tree.Member(fmt.Sprint(20+i), folder)
	}
	usb := tree.PCI(sysfstest.PCI{Address: "0000:00:14.0", Class: 0x0c0330, Vendor: 0x8086, Device: 0xa12f, Driver: "xhci_hcd", Node: 1})
	tree.Link("sys/bus/usb/devices/usb1", usb+"/usb1")
	for i := range 2 {
		folder := fmt.Sprintf("%s/usb1/1-%d", usb, i+1)
		tree.Link(fmt.Sprintf("sys/bus/usb/devices/1-%d", i+1), folder)
		tree.File(folder+"/busnum", "1")
		tree.Printf(folder+"/devnum", "%d", i+2)
		tree.File(folder+"/idVendor", "46f4")
		tree.File(folder+"/idProduct", "0001")
	}
	for _, name := range []string{"vfio/vfio", "vfio/1", "vfio/2", "vfio/3", "vfio/20", "vfio/21", "bus/usb/001/002", "bus/usb/001/003"} {
		makeNode(t, tree.Path("dev/"+name))
	}
	return tree, sysfs.Roots{Sys: tree.Sys, Proc: tree.Proc, Dev: tree.Dev}
}

func permitted() hostdevice.Permitted {
	return hostdevice.Permitted{
		PCI: []hostdevice.PCI{
			{VendorSelector: "10DE:1EB8", ResourceName: "nvidia.com/T4"},
			{VendorSelector: "10DE:10F8", ResourceName: "nvidia.com/sound"},
			{AddressSelector: "0000:82:00.0", ResourceName: "intel.com/i210"},
			{VendorSelector: "8086:1533", ResourceName: "other.org/nic", External: true},
		},
		Mediated: []hostdevice.Mediated{{NameSelector: "GRID T4-1Q", ResourceName: "nvidia.com/GRID_T4-1Q"}},
		USB:      []hostdevice.USB{{ResourceName: "kubevirt.io/storage", Selectors: []hostdevice.USBSelector{{Vendor: "46f4", Product: "0001"}}}},
	}
}

// kinds are those of the host's devices, by resource.
func kinds(c Config) map[string]deviceplugin.Kind {
	all := map[string]deviceplugin.Kind{}
	for _, k := range c.Kinds() {
		all[k.Resource()] = k
	}
	return all
}

func TestHostDevices(t *testing.T) {
	_, roots := machine(t)
	c := Config{Roots: roots, Permitted: permitted()}
	vfio := func(group string) []string { return []string{"/dev/vfio/vfio", "/dev/vfio/" + group} }
	want := map[string][]deviceplugin.Device{
		"nvidia.com/T4": {
			// The group's other function, on the other node, goes with it.
			{ID: "1", NUMANodes: []int{0, 1}, Grant: &deviceplugin.Grant{Nodes: vfio("1"), Variable: "PCI_RESOURCE_NVIDIA_COM_T4", Value: "0000:01:00.0,0000:01:00.1"}},
			{ID: "2", NUMANodes: []int{1}, Grant: &deviceplugin.Grant{Nodes: vfio("2"), Variable: "PCI_RESOURCE_NVIDIA_COM_T4", Value: "0000:81:00.0,0000:81:00.1"}},
		},
		"nvidia.com/sound": nil, // theirs are the groups of the GPUs
		"intel.com/i210":   {{ID: "3", Grant: &deviceplugin.Grant{Nodes: vfio("3"), Variable: "PCI_RESOURCE_INTEL_COM_I210", Value: "0000:82:00.0"}}},
		"nvidia.com/GRID_T4-1Q": {
			{ID: mdev + "0", NUMANodes: []int{1}, Near: "0000:41:00.0", Grant: &deviceplugin.Grant{Nodes: vfio("20"), Variable: "MDEV_PCI_RESOURCE_NVIDIA_COM_GRID_T4-1Q", Value: mdev + "0"}},
			{ID: mdev + "1", NUMANodes: []int{1}, Near: "0000:41:00.0", Grant: &deviceplugin.Grant{Nodes: vfio("21"), Variable: "MDEV_PCI_RESOURCE_NVIDIA_COM_GRID_T4-1Q", Value: mdev + "1"}},
		},
		"kubevirt.io/storage": {
			{ID: "1-2", NUMANodes: []int{1}, Grant: &deviceplugin.Grant{Nodes: []string{"/dev/bus/usb/001/002"}, Variable: "USB_RESOURCE_KUBEVIRT_IO_STORAGE", Value: "1:2"}},
			{ID: "1-3", NUMANodes: []int{1}, Grant: &deviceplugin.Grant{Nodes: []string{"/dev/bus/usb/001/003"}, Variable: "USB_RESOURCE_KUBEVIRT_IO_STORAGE", Value: "1:3"}},
		},
	}
	all := kinds(c)
	if all["other.org/nic"] != nil {
		t.Error("what another plugin offers is offered")
	}
	for resource, devices := range want {
		if got := all[resource].Find(t.Context()); !reflect.DeepEqual(got, devices) {
			t.Errorf("%s:\n%s, want\n%s", resource, show(got), show(devices))
		}
	}
}

func show(devices []deviceplugin.Device) string {
	var b strings.Builder
	for _, d := range devices {
		fmt.Fprintf(&b, "%+v %+v\n", d, *d.Grant)
	}
	return b.String()
}

func TestHostDevicesCDI(t *testing.T) {
	_, roots := machine(t)
	c := Config{Roots: roots, Permitted: permitted(), CDI: map[string]string{"nvidia.com/T4": "nvidia.com/pgpu", "kubevirt.io/storage": "x.org/usb"}}
	all := kinds(c)
	for resource, want := range map[string]string{"nvidia.com/T4": "nvidia.com/pgpu=0000:01:00.0", "kubevirt.io/storage": "x.org/usb=1-2"} {
		g := all[resource].Find(t.Context())[0].Grant
		if !slices.Equal(g.CDI, []string{want}) || len(g.Nodes) > 0 || g.Value == "" {
			t.Errorf("%s: %+v", resource, g)
		}
	}
}

// A group's node goes and comes; another function is bound to another driver, so
// that the group isn't viable any more.
func TestHostDeviceHealth(t *testing.T) {
	tree, roots := machine(t)
	c := Config{Roots: roots, Permitted: permitted()}
	t4 := kinds(c)["nvidia.com/T4"]
	k := offer(t, t4)
	counts(t, k, t4.Resource(), 2, 0)
	for range 2 {
		must(t, os.Remove(tree.Path("dev/vfio/1")))
		counts(t, k, t4.Resource(), 1, 1)
		makeNode(t, tree.Path("dev/vfio/1"))
		counts(t, k, t4.Resource(), 2, 0)
	}
	got, err := k.Preferred(t.Context(), t4.Resource(), []string{"1", "2"}, nil, 1)
	if err != nil || !slices.Equal(got, []string{"1"}) {
		t.Errorf("%q, %v", got, err)
	}
	tree.Remove("sys/bus/pci/drivers/nouveau")
	must(t, os.Remove(tree.Path("sys/devices/pci0000:81/0000:81:00.1/driver")))
	tree.Folder("sys/bus/pci/drivers/snd_hda_intel")
	tree.Link("sys/devices/pci0000:81/0000:81:00.1/driver", "sys/bus/pci/drivers/snd_hda_intel")
	must(t, os.Chmod(tree.Path("dev/vfio/1"), 0o660)) // something happens
	counts(t, k, t4.Resource(), 1, 0)
}

func TestUSBComesAndGoes(t *testing.T) {
	tree, roots := machine(t)
	usb := kinds(Config{Roots: roots, Permitted: permitted()})["kubevirt.io/storage"]
	k := offer(t, usb)
	counts(t, k, usb.Resource(), 2, 0)
	for range 2 {
		must(t, os.Remove(tree.Path("dev/bus/usb/001/003")))
		counts(t, k, usb.Resource(), 1, 1)
		makeNode(t, tree.Path("dev/bus/usb/001/003"))
		counts(t, k, usb.Resource(), 2, 0)
	}
}

// Kernels without nodes of groups, and ids that are too long.
func TestOddDevices(t *testing.T) {
	host := &sysfs.Host{VFIO: sysfs.VFIO{Groups: []string{"2"}}}
	if got := finder.Nodes(host, 1, []string{"vfio0"}); !slices.Equal(got, []string{"vfio/devices/vfio0"}) {
		t.Errorf("%q", got)
	}
	for group, cdevs := range map[int][]string{1: {"vfio0", ""}, 2: {"vfio0"}} {
		if got := finder.Nodes(host, group, cdevs); len(got) != 3 || got[0] != "vfio/vfio" {
			t.Errorf("%q", got)
		}
	}
	d := &HostDevice{resource: "a.b/c", roots: sysfs.Roots{Sys: t.TempDir(), Dev: t.TempDir()}}
	set := strings.TrimSuffix(strings.Repeat("100:100,", 12), ",")
	for _, device := range d.usb(&sysfs.Host{}, nil, []string{set}) {
		if len(device.ID) > deviceplugin.MaxID || device.Grant.Value != set || device.Obstacle == "" {
			t.Errorf("%+v", device)
		}
	}
}

func TestTDX(t *testing.T) {
	tree := sysfstest.Empty(t, t.TempDir())
	hosts := NewHosts(sysfs.Roots{Sys: tree.Sys, Proc: tree.Proc, Dev: tree.Dev})
	if n := (Config{Counts: map[string]int{"tdx": 5}}).tdx(hosts); n != 0 {
		t.Errorf("%d without TDX", n)
	}
	tree.File("sys/fs/cgroup/misc.capacity", "tdx 31")
	if n := (Config{}).tdx(hosts); n != 31 {
		t.Errorf("%d of 31", n)
	}
	if n := (Config{Counts: map[string]int{"tdx": 5}}).tdx(hosts); n != 5 {
		t.Errorf("%d of 5", n)
	}
}

// All resources of the table, each once, and every name one that the kubelet takes.
func TestKinds(t *testing.T) {
	c := Config{Hypervisors: standard.Registry().All(), Permitted: permitted()}
	var got []string
	for _, k := range c.Kinds() {
		if err := resourcename.Check(k.Resource()); err != nil {
			t.Error(err)
		}
		if name, own := strings.CutPrefix(k.Resource(), contract.DeviceDomain+"/"); own {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	want := []string{"iommufd", "kvm", "mshv", "pr-helper", "sev", "tdx", "tun", "vhost-net", "vhost-vsock"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestValidate(t *testing.T) {
	faults := func(c Config) (all []string) {
		c.Hypervisors, c.Permitted = standard.Registry().All(), permitted()
		c.Validate(func(key, format string, args ...any) { all = append(all, key+": "+fmt.Sprintf(format, args...)) })
		return all
	}
	good := Config{
		Counts: map[string]int{"kvm": 1, "tdx": 10, "pr-helper": 10_000}, QGSSocket: "/run/qgs",
		CDI: map[string]string{contract.ResourceKVM: "a.b/c=kvm", "nvidia.com/T4": "nvidia.com/pgpu"},
	}
	if got := faults(good); len(got) > 0 {
		t.Errorf("%q", got)
	}
	for want, c := range map[string]Config{
		"counts.kvn: there is no such device": {Counts: map[string]int{"kvn": 1}},
		"counts.kvm: 0: 1 to 10000":           {Counts: map[string]int{"kvm": 0}},
		"counts.kvm: 10001":                   {Counts: map[string]int{"kvm": 10_001}},
		"qgsSocket":                           {QGSSocket: "run/qgs"},
		"prHelperSocket":                      {PRHelperSocket: "/run/../pr"},
		`cdi["a.b/c"]: vmlet offers no such`:  {CDI: map[string]string{"a.b/c": "a.b/c=d"}},
		`cdi["other.org/nic"]: vmlet offers`:  {CDI: map[string]string{"other.org/nic": "a.b/c"}},
		"want VENDOR/CLASS=NAME":              {CDI: map[string]string{contract.ResourceKVM: "a.b/c"}},
		"want VENDOR/CLASS,":                  {CDI: map[string]string{"nvidia.com/T4": "a.b/c=d"}},
		`"a b/c=d": want`:                     {CDI: map[string]string{contract.ResourceKVM: "a b/c=d"}},
	} {
		if got := faults(c); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Who asks while others ask shares a reading, and never gets one from before it asked.
func TestHosts(t *testing.T) {
	reads := 0
	h := &Hosts{read: func() *sysfs.Host { reads++; return &sysfs.Host{} }}
	first := h.Read()
	if second := h.Read(); second == first || reads != 2 {
		t.Errorf("%d readings", reads)
	}
}
