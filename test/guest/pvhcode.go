package guest

import (
	"github.com/vmlet/vmlet/test/guest/x86"
)

// Ports and registers of a PC.
const (
	uartData   = 0x3f8 // 16550: receive and transmit
	uartStatus = 0x3fd // 16550: line status
	uartReady  = 1 << 0
	uartEmpty  = 1 << 5

	pciAddress = 0xcf8
	pciData    = 0xcfc

	// ACPI fixed hardware (ACPI specification, 4.8.3.1): offsets from PMBASE.
	pm1Enable   = 2
	pm1Control  = 4
	powerButton = 1 << 8
	sleepEnable = 1 << 13 // with sleep type 0, which is S5 in QEMU's DSDT

	// Reset control register of the PC chipsets (ICH9 datasheet, 13.7.5).
	resetControl = 0xcf9
	resetFull    = 0x06
	resetKBC     = 0xfe // keyboard controller command: pulse the reset line
	portKBC      = 0x64

	// The generic event device of hardware-reduced ACPI, at the addresses of
	// QEMU's microvm (include/hw/i386/microvm.h, hw/acpi/generic_event_device.h).
	gedEvents    = 0xfea00000 // reading clears
	gedPowerDown = 1 << 1
	gedSleep     = 0xfea00200
	gedSleepS5   = 5<<2 | 1<<5
	gedReset     = 0xfea00202
	gedResetNow  = 0x42
)

// A pause between two counts ends after pauseTicks of the time stamp counter,
// some 20 ms, or after pausePolls looks at the devices where there is no such
// counter worth its name.
const (
	pauseTicks = 50_000_000
	pausePolls = 200_000
)

// program is the guest being assembled. Functions in it may change every
// register but EBP, which holds the count, unless they say otherwise.
type program struct {
	*x86.Asm
	options PVHOptions
}

// main counts for ever.
func (p *program) main() {
	p.Cli()
	p.ClearDirection()
	p.MovAddr(x86.ESP, "stack end")
	p.line("up")
	p.Call("find power")
	if p.options.Memory.MiB > 0 {
		p.Call("fill")
	}
	p.MovImm(x86.EBP, 0)

	p.Label("main loop")
	p.MovAddr(x86.ESI, "count")
	p.Call("put string")
	p.Mov(x86.EAX, x86.EBP)
	p.Call("put decimal")
	p.Call("put newline")
	p.Inc(x86.EBP)
	if p.options.Flood {
		p.Call("poll")
	} else {
		p.Call("pause")
	}
	p.Jmp("main loop")
}

func (p *program) pause() {
	p.Label("pause")
	p.ReadTSC()
	p.Store("pause start", x86.EAX)
	p.MovImm(x86.EAX, pausePolls)
	p.Store("pause left", x86.EAX)

	p.Label("pause loop")
	p.Call("poll")
	p.ReadTSC()
	p.Load(x86.EDX, "pause start")
	p.Op(x86.Sub, x86.EAX, x86.EDX)
	p.OpImm(x86.Cmp, x86.EAX, pauseTicks)
	p.J(x86.AboveOrEqual, "pause end")
	p.Load(x86.EAX, "pause left")
	p.Dec(x86.EAX)
	p.Store("pause left", x86.EAX)
	p.J(x86.NotZero, "pause loop") // a move leaves the flags alone

	p.Label("pause end")
	p.Ret()
}

// poll looks once at the console and at the power button.
func (p *program) poll() {
	p.Label("poll")
	p.MovImm(x86.EDX, uartStatus)
	p.InByte()
	p.TestImm(x86.EAX, uartReady)
	p.J(x86.Zero, "poll power")
	p.MovImm(x86.EDX, uartData)
	p.InByte()
	p.OpImm(x86.And, x86.EAX, 0xff)
	p.Call("key")

	p.Label("poll power")
	p.Load(x86.EDX, "pm base")
	p.OpImm(x86.Cmp, x86.EDX, 0)
	p.J(x86.Equal, "poll ged")
	p.InWord()
	p.TestImm(x86.EAX, powerButton)
	p.J(x86.NotZero, "pressed")
	p.Ret()

	p.Label("poll ged")
	p.MovImm(x86.EDX, gedEvents)
	p.LoadAt(x86.EAX, x86.EDX)
	p.TestImm(x86.EAX, gedPowerDown)
	p.J(x86.NotZero, "pressed")
	p.Ret()

	p.Label("pressed")
	p.line("power button")
	p.Load(x86.EDX, "pm base")
	p.OpImm(x86.Cmp, x86.EDX, 0)
	p.J(x86.Equal, "pressed end")
	p.MovImm(x86.EAX, powerButton) // writing the bit clears it
	p.OutWord()
	p.Label("pressed end")
	if p.options.IgnorePowerButton {
		p.Ret()
		return
	}
	p.Jmp("power off")
}

// key acts on the character in EAX.
func (p *program) key() {
	p.Label("key")
	for _, k := range []struct {
		char   uint32
		target string
	}{{'\n', "key end"}, {'\r', "key end"}, {KeyPowerOff, "power off"}, {KeyReset, "reset"}, {KeyVerify, "verify"}} {
		if k.char == KeyVerify && p.options.Memory.MiB == 0 {
			continue
		}
		p.OpImm(x86.Cmp, x86.EAX, k.char)
		p.J(x86.Equal, k.target)
	}
	p.Push(x86.EAX)
	p.MovAddr(x86.ESI, "echo")
	p.Call("put string")
	p.Pop(x86.EAX)
	p.Call("put char")
	p.Call("put newline")
	p.Label("key end")
	p.Ret()
}

// power finds the registers that the power button is in, and switches off.
func (p *program) power() {
	p.Label("find power")
	for _, bridge := range []struct {
		address, id, mask uint32
		next              string
	}{
		{0x8000f800, 0x29188086, 0xff80, "not ich9"},  // 00:1f.0, ICH9 LPC: q35
		{0x80000b00, 0x71138086, 0xffc0, "not piix4"}, // 00:01.3, PIIX4 PM: pc
	} {
		p.readPCI(bridge.address)
		p.OpImm(x86.Cmp, x86.EAX, bridge.id)
		p.J(x86.NotEqual, bridge.next)
		p.readPCI(bridge.address | 0x40) // PMBASE, the same place in both
		p.OpImm(x86.And, x86.EAX, bridge.mask)
		p.Jmp("enable power")
		p.Label(bridge.next)
	}
	p.MovImm(x86.EAX, 0)
	p.Store("pm base", x86.EAX)
	p.Ret()

	// QEMU sets the status bit of the button only where it may interrupt.
	p.Label("enable power")
	p.Store("pm base", x86.EAX)
	p.Mov(x86.EDX, x86.EAX)
	p.OpImm(x86.Add, x86.EDX, pm1Enable)
	p.MovImm(x86.EAX, powerButton)
	p.OutWord()
	p.Ret()

	p.Label("power off")
	p.Load(x86.EDX, "pm base")
	p.OpImm(x86.Cmp, x86.EDX, 0)
	p.J(x86.Equal, "power off ged")
	p.OpImm(x86.Add, x86.EDX, pm1Control)
	p.MovImm(x86.EAX, sleepEnable)
	p.OutWord()
	p.Jmp("halt")
	p.Label("power off ged")
	p.MovImm(x86.EDX, gedSleep)
	p.MovImm(x86.EAX, gedSleepS5)
	p.StoreByteAt(x86.EDX, x86.EAX)
	p.Jmp("halt")

	p.Label("reset")
	p.out(resetControl, resetFull)
	p.MovImm(x86.EDX, gedReset)
	p.MovImm(x86.EAX, gedResetNow)
	p.StoreByteAt(x86.EDX, x86.EAX)
	p.out(portKBC, resetKBC)
	p.Label("halt")
	p.Hlt()
	p.Jmp("halt")
}

// memory fills and verifies the pattern.
func (p *program) memory() {
	m := p.options.Memory
	if m.MiB == 0 {
		return
	}
	pages, words := m.MiB*pagesPerMiB, m.perPage()
	rest := (pageWords - words) * 4

	// The page that all others are made from.
	p.Label("make page")
	p.MovAddr(x86.EDI, "page")
	p.MovImm(x86.EAX, m.Seed)
	p.MovImm(x86.ECX, words)
	p.Label("make word")
	for _, shift := range []func(){
		func() { p.Shl(x86.EDX, 13) },
		func() { p.Shr(x86.EDX, 17) },
		func() { p.Shl(x86.EDX, 5) },
	} {
		p.Mov(x86.EDX, x86.EAX)
		shift()
		p.Op(x86.Xor, x86.EAX, x86.EDX)
	}
	p.StoreAt(x86.EDI, x86.EAX)
	p.OpImm(x86.Add, x86.EDI, 4)
	p.Dec(x86.ECX)
	p.J(x86.NotZero, "make word")
	p.Ret()

	// The page for EBX pages left, and all set for a string instruction.
	p.Label("next page")
	p.Mov(x86.EAX, x86.EBX)
	p.MulImm(x86.EAX, pageHashing)
	p.OpImm(x86.Xor, x86.EAX, m.Seed)
	p.Store("page", x86.EAX)
	p.MovAddr(x86.ESI, "page")
	p.MovImm(x86.ECX, words)
	p.Ret()

	p.Label("fill")
	p.Call("make page")
	p.MovImm(x86.EDI, m.Address)
	p.MovImm(x86.EBX, pages)
	p.Label("fill page")
	p.Call("next page")
	p.CopyLongs()
	p.OpImm(x86.Add, x86.EDI, rest)
	p.Dec(x86.EBX)
	p.J(x86.NotZero, "fill page")
	p.MovAddr(x86.ESI, "filled")
	p.Call("put string")
	p.MovImm(x86.EAX, m.MiB)
	p.Call("put decimal")
	p.Jmp("put newline")

	p.Label("verify")
	p.Call("make page")
	p.MovImm(x86.EAX, 0)
	p.Store("sum", x86.EAX)
	p.MovImm(x86.EDI, m.Address)
	p.MovImm(x86.EBX, pages)
	p.Label("verify page")
	p.Call("next page")
	p.CompareLongs()
	p.J(x86.NotEqual, "corrupt found")
	p.Mov(x86.EAX, x86.EBX) // the word that this page adds to the sum
	p.OpImm(x86.And, x86.EAX, words-1)
	p.Shl(x86.EAX, 2)
	p.Op(x86.Add, x86.EAX, x86.EDI)
	p.OpImm(x86.Sub, x86.EAX, words*4)
	p.LoadAt(x86.EDX, x86.EAX)
	p.Load(x86.EAX, "sum")
	p.Rol(x86.EAX, 1)
	p.Op(x86.Add, x86.EAX, x86.EDX)
	p.Store("sum", x86.EAX)
	p.OpImm(x86.Add, x86.EDI, rest)
	p.Dec(x86.EBX)
	p.J(x86.NotZero, "verify page")
	p.MovAddr(x86.ESI, "verified")
	p.Call("put string")
	p.Load(x86.EAX, "sum")
	p.Call("put hexadecimal")
	p.Jmp("put newline")

	p.Label("corrupt found")
	p.MovAddr(x86.ESI, "corrupt")
	p.Call("put string")
	p.Mov(x86.EAX, x86.EDI)
	p.OpImm(x86.Sub, x86.EAX, 4)
	p.Call("put hexadecimal")
	p.Jmp("put newline")
}

// print has the functions that write to the console. None but put string
// changes EDI, ESI or EBX.
func (p *program) print() {
	p.Label("put newline")
	p.MovImm(x86.EAX, '\n')

	p.Label("put char") // the character in AL; ECX stays
	p.Push(x86.EAX)
	p.MovImm(x86.EDX, uartStatus)
	p.Label("put wait")
	p.InByte()
	p.TestImm(x86.EAX, uartEmpty)
	p.J(x86.Zero, "put wait")
	p.Pop(x86.EAX)
	p.MovImm(x86.EDX, uartData)
	p.OutByte()
	p.Ret()

	p.Label("put string") // at x86.ESI, ended by a zero
	p.LoadByte()
	p.TestImm(x86.EAX, 0xff)
	p.J(x86.Zero, "put string end")
	p.Call("put char")
	p.Jmp("put string")
	p.Label("put string end")
	p.Ret()

	p.Label("put decimal") // the number in EAX
	p.Push(x86.EBX)
	p.MovImm(x86.EBX, 10)
	p.MovImm(x86.ECX, 0)
	p.Label("decimal digit")
	p.MovImm(x86.EDX, 0)
	p.Div(x86.EBX)
	p.OpImm(x86.Add, x86.EDX, '0')
	p.Push(x86.EDX)
	p.Inc(x86.ECX)
	p.OpImm(x86.Cmp, x86.EAX, 0)
	p.J(x86.NotEqual, "decimal digit")
	p.Label("decimal put")
	p.Pop(x86.EAX)
	p.Call("put char")
	p.Dec(x86.ECX)
	p.J(x86.NotZero, "decimal put")
	p.Pop(x86.EBX)
	p.Ret()

	p.Label("put hexadecimal") // the number in x86.EAX, eight digits
	p.MovImm(x86.ECX, 8)
	p.Label("hexadecimal digit")
	p.Rol(x86.EAX, 4)
	p.Push(x86.EAX)
	p.OpImm(x86.And, x86.EAX, 0xf)
	p.OpImm(x86.Add, x86.EAX, '0')
	p.OpImm(x86.Cmp, x86.EAX, '9'+1)
	p.J(x86.Below, "hexadecimal put")
	p.OpImm(x86.Add, x86.EAX, 'a'-'9'-1)
	p.Label("hexadecimal put")
	p.Call("put char")
	p.Pop(x86.EAX)
	p.Dec(x86.ECX)
	p.J(x86.NotZero, "hexadecimal digit")
	p.Ret()
}

func (p *program) data() {
	for _, s := range []struct{ label, text string }{
		{"up", UpLine + "\n"},
		{"count", CountPrefix},
		{"echo", EchoPrefix},
		{"filled", FilledPrefix},
		{"verified", VerifyPrefix},
		{"corrupt", CorruptLine},
		{"power button", PowerLine + "\n"},
	} {
		p.Label(s.label)
		p.Data(append([]byte(s.text), 0))
	}
	p.Align(16)
	for _, word := range []string{"pm base", "pause start", "pause left", "sum"} {
		p.Label(word)
		p.Space(4)
	}
	p.Align(16)
	p.Label("page")
	p.Space(pageWords * 4)
	p.Space(pvhStackSize)
	p.Label("stack end")
}

// line prints the text at a label.
func (p *program) line(label string) {
	p.MovAddr(x86.ESI, label)
	p.Call("put string")
}

// out writes a byte to a port.
func (p *program) out(port, value uint32) {
	p.MovImm(x86.EDX, port)
	p.MovImm(x86.EAX, value)
	p.OutByte()
}

// readPCI reads a word of configuration space into EAX.
func (p *program) readPCI(address uint32) {
	p.MovImm(x86.EDX, pciAddress)
	p.MovImm(x86.EAX, address)
	p.OutLong()
	p.MovImm(x86.EDX, pciData)
	p.InLong()
}
