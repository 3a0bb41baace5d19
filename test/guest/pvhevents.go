package guest

import "github.com/vmlet/vmlet/test/guest/x86"

// Where the tables of ACPI are, and what of them leads to the events' byte:
// struct hvm_start_info (Xen's include/public/arch-x86/hvm/start_info.h), RSDP,
// XSDT, FADT and the header of all tables (ACPI specification, 5.2).
const (
	startInfoMagic = 0x336ec578
	startInfoRSDP  = 32
	rsdpXSDT       = 24
	tableLength    = 4
	tableHeader    = 36 // in the XSDT, the first address is behind it
	fadtDSDT       = 140

	signatureFACP = 'F' | 'A'<<8 | 'C'<<16 | 'P'<<24
	// An operation region: its name, SystemMemory (0) and an integer of eight
	// bytes (AML's QWordPrefix).
	regionSpace   = 4
	regionAddress = 6
	regionQWord   = 0x0e << 8
	regionTail    = 'S' | 'T'<<8 // how the names of all that are looked for end
)

// region is one of the operation regions in cloud-hypervisor's DSDT, and where its
// address is kept.
type region struct {
	name  uint32
	label string
}

// regions are those of the generic event device (devices/src/acpi.rs), and of the
// hotplug of PCI devices and vCPUs (vmm/src/device_manager.rs and cpu.rs).
func regions() []region {
	return []region{
		{'G' | 'D'<<8 | 'S'<<16 | 'T'<<24, "event byte"},
		{'P' | 'C'<<8 | 'S'<<16 | 'T'<<24, "pci registers"},
		{'P' | 'R'<<8 | 'S'<<16 | 'T'<<24, "vcpu registers"},
	}
}

// Paging with physical addresses of more than 32 bits, by pages of 2 MiB (Intel
// 64 and IA-32 Architectures Software Developer's Manual, volume 3, 4.5).
const (
	pagePresent  = 1 << 0
	pageWritable = 1 << 1
	pageUncached = 1 << 4
	pageLarge    = 1 << 7
	largePage    = 2 << 20
	perDirectory = 512

	controlPaging = 1 << 31 // in CR0
	controlPAE    = 1 << 5  // in CR4
	msrEFER       = 0xc0000080
	longMode      = 1 << 8

	// window is where the large page with the registers is mapped: behind the
	// 2 GiB, which are mapped as they are.
	window           = patternEnd
	directoriesOfRAM = patternEnd / largePage / perDirectory
)

// events finds the registers by which cloud-hypervisor tells of the power button
// and of devices that are to go. They are far above 4 GiB, so paging is switched on
// to get at them; everywhere else it stays off.
func (p *program) events() {
	p.Label("find event byte")
	p.findDSDT()

	// EDI: the table, ECX: how far to look.
	p.MovImm(x86.ESI, tableLength)
	p.Op(x86.Add, x86.ESI, x86.EDI)
	p.LoadAt(x86.ECX, x86.ESI)
	p.OpImm(x86.Sub, x86.ECX, regionAddress+8)
	p.Label("look for region")
	p.LoadAt(x86.EAX, x86.EDI)
	p.Mov(x86.EDX, x86.EAX)
	p.Shr(x86.EDX, 16)
	p.OpImm(x86.Cmp, x86.EDX, regionTail)
	p.J(x86.Equal, "maybe region")
	p.Label("next byte")
	p.Inc(x86.EDI)
	p.Dec(x86.ECX)
	p.J(x86.NotZero, "look for region")
	p.Load(x86.EAX, "event byte")
	p.OpImm(x86.Cmp, x86.EAX, 0)
	p.J(x86.NotEqual, "map window")
	p.Label("no event byte")
	p.Ret()

	p.Label("maybe region")
	for _, r := range regions() {
		p.MovAddr(x86.EBX, r.label)
		p.OpImm(x86.Cmp, x86.EAX, r.name)
		p.J(x86.Equal, "region found")
	}
	p.Jmp("next byte")
	p.regionFound()
	p.Label("map window")
	p.mapWindow()
	p.Ret()
}

// regionFound keeps the address of the region at EDI where EBX points to, as far
// as it is in the same large page as the first one's.
func (p *program) regionFound() {
	p.Label("region found")
	p.loadField(x86.EAX, x86.EDI, regionSpace)
	p.OpImm(x86.And, x86.EAX, 0xffff)
	p.OpImm(x86.Cmp, x86.EAX, regionQWord)
	p.J(x86.NotEqual, "next byte") // another use of the name
	p.loadField(x86.EAX, x86.EDI, regionAddress)
	p.loadField(x86.EDX, x86.EDI, regionAddress+4)
	p.Mov(x86.ESI, x86.EAX)
	p.OpImm(x86.And, x86.ESI, ^uint32(largePage-1))
	p.OpImm(x86.And, x86.EAX, largePage-1)
	p.OpImm(x86.Add, x86.EAX, window)
	p.Push(x86.EAX)
	p.Load(x86.EAX, "window high")
	p.OpImm(x86.Cmp, x86.EAX, 0)
	p.J(x86.NotEqual, "window known")
	p.Store("window low", x86.ESI)
	p.Store("window high", x86.EDX)
	p.Label("window known")
	p.Load(x86.EAX, "window low")
	p.Op(x86.Xor, x86.ESI, x86.EAX)
	p.Load(x86.EAX, "window high")
	p.Op(x86.Xor, x86.EDX, x86.EAX)
	p.Op(x86.Or, x86.EDX, x86.ESI)
	p.Pop(x86.EAX)
	p.J(x86.NotZero, "next byte")
	p.StoreAt(x86.EBX, x86.EAX)
	p.Jmp("next byte")
}

// findDSDT leaves the address of the DSDT in EDI, or returns from the function
// that it is part of. It trusts what the VMM wrote below 4 GiB.
func (p *program) findDSDT() {
	p.Load(x86.ESI, "start info")
	p.LoadAt(x86.EAX, x86.ESI)
	p.OpImm(x86.Cmp, x86.EAX, startInfoMagic)
	p.J(x86.NotEqual, "no event byte")
	for _, field := range []uint32{startInfoRSDP, rsdpXSDT} {
		p.loadField(x86.ESI, x86.ESI, field)
		p.OpImm(x86.Cmp, x86.ESI, 0)
		p.J(x86.Equal, "no event byte")
	}
	p.loadField(x86.ECX, x86.ESI, tableLength)
	p.OpImm(x86.Sub, x86.ECX, tableHeader)
	p.Shr(x86.ECX, 3)
	p.OpImm(x86.Add, x86.ESI, tableHeader)
	p.Label("look for FADT")
	p.OpImm(x86.Cmp, x86.ECX, 0)
	p.J(x86.Equal, "no event byte")
	p.LoadAt(x86.EDI, x86.ESI)
	p.LoadAt(x86.EAX, x86.EDI)
	p.OpImm(x86.Add, x86.ESI, 8)
	p.Dec(x86.ECX)
	p.OpImm(x86.Cmp, x86.EAX, signatureFACP)
	p.J(x86.NotEqual, "look for FADT")
	p.loadField(x86.EDI, x86.EDI, fadtDSDT)
}

// mapWindow switches paging on: the lower 2 GiB as they are, and then the large
// page of the registers. It is the paging of long mode, in which
// 32-bit code goes on as before (the compatibility mode): a KVM that emulates
// may not have that of 32-bit mode.
func (p *program) mapWindow() {
	p.MovAddr(x86.EDI, "directories")
	p.MovImm(x86.EAX, pagePresent|pageWritable|pageLarge)
	p.Label("map page")
	p.StoreAt(x86.EDI, x86.EAX)
	p.OpImm(x86.Add, x86.EDI, 8) // the upper half stays 0
	p.OpImm(x86.Add, x86.EAX, largePage)
	p.OpImm(x86.Cmp, x86.EAX, patternEnd)
	p.J(x86.Below, "map page")

	p.Load(x86.EAX, "window low")
	p.OpImm(x86.Or, x86.EAX, pagePresent|pageWritable|pageUncached|pageLarge)
	p.StoreAt(x86.EDI, x86.EAX)
	p.OpImm(x86.Add, x86.EDI, 4)
	p.Load(x86.EAX, "window high")
	p.StoreAt(x86.EDI, x86.EAX)

	p.Control(x86.EAX, 4)
	p.OpImm(x86.Or, x86.EAX, controlPAE)
	p.SetControl(4, x86.EAX)
	p.MovAddr(x86.EAX, "page map")
	p.SetControl(3, x86.EAX)
	p.MovImm(x86.ECX, msrEFER)
	p.ReadMSR()
	p.OpImm(x86.Or, x86.EAX, longMode)
	p.WriteMSR()
	p.Control(x86.EAX, 0)
	p.OpImm(x86.Or, x86.EAX, controlPaging)
	p.SetControl(0, x86.EAX)
}

// loadField reads the 32-bit word that lies some bytes behind base into r, which
// may be base; otherwise base stays.
func (p *program) loadField(r, base x86.Reg, offset uint32) {
	if r != base {
		p.Mov(r, base)
	}
	p.OpImm(x86.Add, r, offset)
	p.LoadAt(r, r)
}

// tables has the room for page tables.
func (p *program) tables() {
	p.Align(4096)
	p.Label("directories")
	p.Space((directoriesOfRAM + 1) * 4096)
	p.Label("directory pointers")
	for i := range uint32(directoriesOfRAM + 1) {
		p.DataAddr("directories", i*4096|pagePresent|pageWritable)
		p.Space(4)
	}
	p.Align(4096)
	p.Label("page map")
	p.DataAddr("directory pointers", pagePresent|pageWritable)
	p.Align(4096)
}
