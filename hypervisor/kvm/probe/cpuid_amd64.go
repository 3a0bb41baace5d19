package probe

import (
	"unsafe"

	"github.com/vmlet/vmlet/hypervisor/device"
)

const (
	// CPUID leaf 7, subleaf 0, EDX: IA32_ARCH_CAPABILITIES is there (Intel SDM volume 2, CPUID).
	cpuidArchCapabilities = 1 << 29
	// IA32_ARCH_CAPABILITIES (Intel SDM volume 4).
	msrArchCapabilities = 0x10A

	quirkNoArchCapabilities = "-arch-capabilities"
)

// setCPUID gives the vCPU every feature that KVM offers, as QEMU's host model does, and returns the features that have to
// be switched off for that model to work.
func (m *machine) setCPUID(kvm int) ([]string, *device.Failure) {
	var id kvmCPUID
	id.count = uint32(len(id.entries))
	if _, err := device.Ioctl(kvm, kvmGetSupportedCPUID, unsafe.Pointer(&id)); err != nil {
		return nil, device.Failed("KVM_GET_SUPPORTED_CPUID", device.Errno(err), "")
	}
	if _, err := device.Ioctl(m.vcpu, kvmSetCPUID2, unsafe.Pointer(&id)); err != nil {
		return nil, device.Failed("KVM_SET_CPUID2", device.Errno(err), "")
	}
	if m.refusesArchCapabilities(kvm, &id) {
		return []string{quirkNoArchCapabilities}, nil
	}
	return nil, nil
}

// refusesArchCapabilities reports whether KVM offers IA32_ARCH_CAPABILITIES with a value that it then won't take. QEMU writes
// the offered value to the MSR of a host model's vCPU and aborts when it isn't taken.
func (m *machine) refusesArchCapabilities(kvm int, id *kvmCPUID) bool {
	if !id.offersArchCapabilities() {
		return false
	}
	// KVM_GET_MSRS on /dev/kvm, not on a vCPU, gives the value that KVM supports; it returns how many it had.
	msr := kvmMSR{count: 1, index: msrArchCapabilities}
	if n, err := device.Ioctl(kvm, kvmGetMSRs, unsafe.Pointer(&msr)); err != nil || n != 1 {
		return false
	}
	n, err := device.Ioctl(m.vcpu, kvmSetMSRs, unsafe.Pointer(&msr))
	return err != nil || n != 1
}

func (id *kvmCPUID) offersArchCapabilities() bool {
	for _, e := range id.entries[:min(int(id.count), len(id.entries))] {
		if e.function == 7 && e.index == 0 {
			return e.edx&cpuidArchCapabilities != 0
		}
	}
	return false
}
