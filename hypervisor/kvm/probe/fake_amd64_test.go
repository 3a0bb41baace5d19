package probe

import (
	"encoding/binary"
	"testing"

	"github.com/vmlet/vmlet/hypervisor/device"
	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
)

// What a descriptor of the made-up KVM is of.
const (
	ofKVM  = "kvm"
	ofVM   = "vm"
	ofVCPU = "vcpu"
)

// fakeKVM is a made-up KVM, as strict as the kernel's: what it is asked of the wrong descriptor, with the wrong size or without
// room is refused just so.
type fakeKVM struct {
	t       *testing.T
	version int
	// Extensions by number; onVM are those that a virtual machine answers otherwise.
	extensions, onVM map[uintptr]int
	// leaves and hvLeaves have seven words each, as struct kvm_cpuid_entry2 begins.
	leaves, hvLeaves  [][7]uint32
	msrs, featureMSRs []uint32
	khz               int
	// errors by request.
	errors map[uintptr]error
	// lie is added to every count that is answered.
	lie  uint32
	open map[int]string
	// asked are the requests in their order.
	asked []uintptr
}

// discovery is one of this KVM, which is closed with the test.
func (k *fakeKVM) discovery(t *testing.T, roots sysfs.Roots) *discovery {
	t.Helper()
	k.t, k.open = t, map[int]string{}
	if k.version == 0 {
		k.version = 12
	}
	d := newDiscovery(k, roots, "/dev/kvm")
	d.kvm = k.descriptor(ofKVM)
	t.Cleanup(func() { unix.Close(d.kvm) })
	return d
}

// descriptor is a real one, as it will be closed.
func (k *fakeKVM) descriptor(kind string) int {
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		k.t.Fatal(err)
	}
	k.open[fd] = kind
	return fd
}

func (k *fakeKVM) Call(fd int, request, arg uintptr) (int, error) {
	k.asked = append(k.asked, request)
	if err := k.errors[request]; err != nil {
		return -1, err
	}
	kind := k.open[fd]
	switch {
	case request == 0xAE00 && kind == ofKVM && arg == 0:
		return k.version, nil
	case request == 0xAE01 && kind == ofKVM && arg == 0:
		return k.descriptor(ofVM), nil
	case request == 0xAE03 && kind == ofKVM:
		return k.extensions[arg], nil
	case request == 0xAE03 && kind == ofVM && k.extensions[105] > 0:
		if answer, differs := k.onVM[arg]; differs {
			return answer, nil
		}
		return k.extensions[arg], nil
	case request == 0xAE41 && kind == ofVM && arg == 0:
		return k.descriptor(ofVCPU), nil
	case request == 0xAEA3 && kind == ofVCPU && k.extensions[61] > 0:
		return k.khz, nil
	}
	return -1, unix.ENOTTY
}

func (k *fakeKVM) Fill(fd int, request uintptr, buf []byte, links ...device.Link) (int, error) {
	k.asked = append(k.asked, request)
	if err := k.errors[request]; err != nil {
		return -1, err
	}
	if len(links) != 0 {
		return -1, unix.EFAULT
	}
	kind := k.open[fd]
	switch {
	case request == 0xC008AE05 && kind == ofKVM:
		return k.fillCPUID(buf, k.leaves)
	case request == 0xC008AEC1 && (kind == ofKVM && k.extensions[191] > 0 || kind == ofVCPU && k.extensions[167] > 0):
		return k.fillCPUID(buf, k.hvLeaves)
	case request == 0xC004AE02 && kind == ofKVM:
		return k.fillMSRs(buf, k.msrs)
	case request == 0xC004AE0A && kind == ofKVM && k.extensions[153] > 0:
		return k.fillMSRs(buf, k.featureMSRs)
	}
	return -1, unix.ENOTTY
}

func (k *fakeKVM) fillCPUID(buf []byte, leaves [][7]uint32) (int, error) {
	room := int(binary.NativeEndian.Uint32(buf))
	switch {
	case len(buf) < 8+40*room:
		return -1, unix.EFAULT
	case room < len(leaves):
		return -1, unix.E2BIG
	}
	binary.NativeEndian.PutUint32(buf, uint32(len(leaves))+k.lie)
	for i, leaf := range leaves {
		for j, word := range leaf {
			binary.NativeEndian.PutUint32(buf[8+40*i+4*j:], word)
		}
	}
	return 0, nil
}

func (k *fakeKVM) fillMSRs(buf []byte, msrs []uint32) (int, error) {
	room := int(binary.NativeEndian.Uint32(buf))
	binary.NativeEndian.PutUint32(buf, uint32(len(msrs))+k.lie)
	switch {
	case room < len(msrs):
		return -1, unix.E2BIG
	case len(buf) < 4+4*len(msrs):
		return -1, unix.EFAULT
	}
	for i, msr := range msrs {
		binary.NativeEndian.PutUint32(buf[4+4*i:], msr)
	}
	return 0, nil
}
