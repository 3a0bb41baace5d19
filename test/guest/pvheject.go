package guest

import "github.com/vmlet/vmlet/test/guest/x86"

// Registers of cloud-hypervisor's hotplug, offsets in bytes. Those of PCI are
// bitmaps of device numbers, of the segment that was selected: at first that is
// segment 0, which is the only one that is looked at.
const (
	pciDown  = 4 // reading clears
	pciEject = 8

	vcpuStatus   = 4 // one byte, of the vCPU whose number is written to offset 0
	vcpuPresent  = 1 << 0
	vcpuRemoving = 1 << 2
	vcpuEject    = 1 << 3

	// Bits of the event byte (devices/src/lib.rs).
	chVCPUs = 1 << 0
	chPCI   = 1 << 2
)

// eject lets go of what the event byte in EAX says that is to go, as a system does
// that has no use for it any more. EAX stays.
func (p *program) eject() {
	p.Label("let go")
	if p.options.KeepDevices {
		p.Ret()
		return
	}
	p.Push(x86.EAX)
	p.TestImm(x86.EAX, chPCI)
	p.J(x86.Zero, "let go of vcpus")
	p.Load(x86.EDX, "pci registers")
	p.OpImm(x86.Cmp, x86.EDX, 0)
	p.J(x86.Equal, "let go of vcpus")
	p.loadField(x86.EAX, x86.EDX, pciDown)
	p.OpImm(x86.Add, x86.EDX, pciEject)
	p.StoreAt(x86.EDX, x86.EAX)

	p.Label("let go of vcpus")
	p.Pop(x86.EAX)
	p.Push(x86.EAX)
	p.TestImm(x86.EAX, chVCPUs)
	p.J(x86.Zero, "let go end")
	p.Load(x86.EDX, "vcpu registers")
	p.OpImm(x86.Cmp, x86.EDX, 0)
	p.J(x86.Equal, "let go end")
	p.MovImm(x86.ECX, 0)
	p.Label("next vcpu")
	p.StoreAt(x86.EDX, x86.ECX)
	p.Inc(x86.ECX)
	p.Mov(x86.EBX, x86.EDX)
	p.OpImm(x86.Add, x86.EBX, vcpuStatus)
	p.LoadByteAt(x86.EAX, x86.EBX)
	p.TestImm(x86.EAX, vcpuPresent)
	p.J(x86.Zero, "let go end") // they are without gaps
	p.TestImm(x86.EAX, vcpuRemoving)
	p.J(x86.Zero, "next vcpu")
	p.MovImm(x86.EAX, vcpuEject)
	p.StoreByteAt(x86.EBX, x86.EAX)
	p.Jmp("next vcpu")

	p.Label("let go end")
	p.Pop(x86.EAX)
	p.Ret()
}
