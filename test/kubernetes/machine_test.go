package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/capabilities/hostdevice"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/sysfs/sysfstest"
)

// Of the made-up machine's devices.
const (
	gpus  = "example.com/gpu" // two on node 0 and six on node 1, two behind each bridge
	cards = "example.com/nic" // one on each node
	disks = "example.com/ssd" // two on node 0
)

// kvmGroup owns the made-up machine's /dev/kvm, as a distribution's group "kvm".
const kvmGroup = 4242

// place is where a PCI function is.
type place struct {
	node, group int
	bridge      string
}

// machine is a made-up one with this machine's CPUs, on two NUMA nodes.
type machine struct {
	*sysfstest.Tree
	roots sysfs.Roots
	// cpus of each node.
	cpus [2][]int
	// functions by address.
	functions map[string]place
	// kvm: its /dev/kvm is this machine's. Else it is another /dev/null, which all
	// can be done with but to ask it for its version.
	kvm bool
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	cpus := allowedCPUs(t)
	if len(cpus) < 2 {
		t.Skip("two NUMA nodes with a CPU each need two CPUs")
	}
	described := sysfstest.Machine{Packages: 1, Cores: len(cpus), IDs: cpus, Caches: []sysfstest.Cache{}}.SplitNodes(2, 4<<30)
	m := &machine{Tree: described.WriteTo(t, deviceFolder(t)), functions: make(map[string]place)}
	m.roots = sysfs.Roots{Sys: m.Sys, Proc: m.Proc, Dev: m.Dev}
	for i := range m.cpus {
		m.cpus[i] = described.Nodes[i].CPUs
	}
	m.usualDevices(t)
	m.makeKVM(t)
	m.node(t, "vfio/vfio", unix.Mkdev(1, 3), 0o666)
	m.pci(t, 0, "0000:10:01.0", 0x10de, 0x1eb8, 2)
	for _, bridge := range []string{"0000:80:01.0", "0000:80:02.0", "0000:80:03.0"} {
		m.pci(t, 1, bridge, 0x10de, 0x1eb8, 2)
	}
	m.pci(t, 0, "0000:10:02.0", 0x8086, 0x1533, 1)
	m.pci(t, 1, "0000:80:04.0", 0x8086, 0x1533, 1)
	m.pci(t, 0, "0000:10:03.0", 0x144d, 0xa808, 2)
	return m
}

// deviceFolder is a temporary one that device nodes can be used in: /tmp is often
// mounted without.
func deviceFolder(t *testing.T) string {
	t.Helper()
	for _, parent := range []string{os.TempDir(), "/var/tmp"} {
		var fs unix.Statfs_t
		if err := unix.Statfs(parent, &fs); err != nil || fs.Flags&unix.ST_NODEV != 0 {
			continue
		}
		folder, err := os.MkdirTemp(parent, "vmlet-machine-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(folder) })
		return folder
	}
	t.Skip("device nodes can't be used in /tmp and /var/tmp: set TMPDIR")
	return ""
}

func permitted() hostdevice.Permitted {
	return hostdevice.Permitted{PCI: []hostdevice.PCI{
		{VendorSelector: "10DE:1EB8", ResourceName: gpus},
		{VendorSelector: "8086:1533", ResourceName: cards},
		{VendorSelector: "144D:A808", ResourceName: disks},
	}}
}

// usualDevices are those of this machine that a kubelet, a container runtime and
// programs want, whatever else there is.
func (m *machine) usualDevices(t *testing.T) {
	t.Helper()
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx", "kmsg"} {
		var st unix.Stat_t
		if err := unix.Stat("/dev/"+name, &st); err == nil {
			m.node(t, name, st.Rdev, st.Mode&0o777)
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		m.RawLink("dev/"+name, target)
	}
	m.Folder("dev/pts")
	m.Folder("dev/shm")
}

// makeKVM makes /dev/kvm as udev does where there is a group "kvm".
func (m *machine) makeKVM(t *testing.T) {
	t.Helper()
	number := unix.Mkdev(1, 3)
	if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil {
		f.Close()
		m.kvm, number = true, unix.Mkdev(10, 232)
	}
	m.node(t, "kvm", number, 0o660)
	if err := os.Chown(m.Path("dev/kvm"), 0, kvmGroup); err != nil {
		t.Fatal(err)
	}
}

// node makes a device node below /dev.
func (m *machine) node(t *testing.T, name string, number uint64, mode uint32) {
	t.Helper()
	m.Folder(filepath.Dir("dev/" + name))
	path := m.Path("dev/" + name)
	err := unix.Mknod(path, unix.S_IFCHR|mode, int(number))
	if err == unix.EPERM {
		t.Skip("device nodes can't be made here")
	}
	if err != nil {
		t.Fatalf("making the device node %s: %v", path, err)
	}
	if err := os.Chmod(path, os.FileMode(mode)); err != nil { // whatever the umask
		t.Fatal(err)
	}
}

// pci makes a bridge and so many functions behind it, each in a group of its own
// that is given to VFIO.
func (m *machine) pci(t *testing.T, node int, bridge string, vendor, device uint16, count int) {
	t.Helper()
	m.PCI(sysfstest.PCI{Address: bridge, Class: 0x060400, Vendor: 0x8086, Device: 0x2030, Driver: "pcieport", Node: node})
	for range count {
		p := place{node: node, group: len(m.functions) + 1, bridge: bridge}
		address := fmt.Sprintf("%s:%02x:00.0", bridge[:4], 0x10*(node+1)+p.group)
		m.PCI(sysfstest.PCI{
			Address: address, Parent: bridge, Vendor: vendor, Device: device,
			Driver: "vfio-pci", Group: fmt.Sprint(p.group), Node: node,
		})
		m.node(t, fmt.Sprintf("vfio/%d", p.group), unix.Mkdev(1, 3), 0o666)
		m.functions[address] = p
	}
}

func allowedCPUs(t *testing.T) []int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}
