package probe

import (
	"strconv"

	"github.com/vmlet/vmlet/hypervisor/device"
	"github.com/vmlet/vmlet/sysfs"
)

// CPUID leaves that tell the TSC's frequency.
const (
	cpuidTSC        = 0x15       // Intel SDM volume 2: ECX × EBX / EAX, in Hz
	cpuidHypervisor = 0x40000010 // VMware's, which KVM's hosts give too: EAX in kHz
)

// tscOfHost is the frequency in Hz as the kernel's file tells (a driver outside the kernel makes it), else the processor by
// CPUID; 0: neither tells.
func tscOfHost(roots sysfs.Roots) uint64 {
	text, err := device.Text(roots.SysPath("devices/system/cpu/cpu0/tsc_freq_khz"))
	if khz, err2 := strconv.ParseUint(text, 10, 40); err == nil && err2 == nil && khz > 0 {
		return khz * 1000
	}
	return tscOfCPUID(device.CPUIDReader(roots))
}

func tscOfCPUID(read func(function, index uint32) (device.CPUIDLeaf, error)) uint64 {
	if top, err := read(0, 0); err == nil && top.EAX >= cpuidTSC {
		if l, err := read(cpuidTSC, 0); err == nil && l.EAX != 0 && l.EBX != 0 && l.ECX != 0 {
			return uint64(l.ECX) * uint64(l.EBX) / uint64(l.EAX)
		}
	}
	// Its maximum, in EAX of the first hypervisor leaf, is senseless on a machine without a hypervisor.
	if top, err := read(0x40000000, 0); err == nil && top.EAX >= cpuidHypervisor && top.EAX < 0x40010000 {
		if l, err := read(cpuidHypervisor, 0); err == nil {
			return uint64(l.EAX) * 1000
		}
	}
	return 0
}
