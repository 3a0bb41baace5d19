package probe

import (
	"encoding/binary"
	"fmt"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"unsafe"
)

// maxListed bounds how many leaves or MSRs KVM is asked for; it has 256 leaves at most (KVM_MAX_CPUID_ENTRIES) and some hundred
// MSRs.
const maxListed = 8192

const (
	cpuidHeader = 8 // struct kvm_cpuid2: nent, padding
	cpuidEntry  = int(unsafe.Sizeof(kvmCPUIDEntry{}))
	msrHeader   = 4 // struct kvm_msr_list: nmsrs
)

func newCPUIDBuffer(room int) []byte {
	buf := make([]byte, cpuidHeader+room*cpuidEntry)
	binary.NativeEndian.PutUint32(buf, uint32(room))
	return buf
}

func newMSRBuffer(room int) []byte {
	buf := make([]byte, msrHeader+room*4)
	binary.NativeEndian.PutUint32(buf, uint32(room))
	return buf
}

// parseCPUID reads a struct kvm_cpuid2.
func parseCPUID(buf []byte) ([]*capabilitiesv1.CpuidLeaf, error) {
	entries, n, err := counted(buf, cpuidHeader, cpuidEntry)
	if err != nil {
		return nil, err
	}
	leaves := make([]*capabilitiesv1.CpuidLeaf, n)
	for i := range leaves {
		// struct kvm_cpuid_entry2: function, index, flags, eax, ebx, ecx, edx, padding.
		field := func(at int) uint32 { return binary.NativeEndian.Uint32(entries[i*cpuidEntry+4*at:]) }
		leaves[i] = &capabilitiesv1.CpuidLeaf{
			Function: field(0), Index: field(1), Eax: field(3), Ebx: field(4), Ecx: field(5), Edx: field(6),
		}
	}
	return leaves, nil
}

// parseMSRs reads a struct kvm_msr_list.
func parseMSRs(buf []byte) ([]uint32, error) {
	entries, n, err := counted(buf, msrHeader, 4)
	if err != nil {
		return nil, err
	}
	msrs := make([]uint32, n)
	for i := range msrs {
		msrs[i] = binary.NativeEndian.Uint32(entries[4*i:])
	}
	return msrs, nil
}

// counted returns the entries that follow a header which begins with their number.
func counted(buf []byte, header, size int) ([]byte, int, error) {
	if len(buf) < header {
		return nil, 0, fmt.Errorf("%d bytes are too few", len(buf))
	}
	n := uint64(binary.NativeEndian.Uint32(buf))
	if room := uint64(len(buf)-header) / uint64(size); n > room {
		return nil, 0, fmt.Errorf("the kernel says %d entries and there was room for %d", n, room)
	}
	return buf[header:], int(n), nil
}
