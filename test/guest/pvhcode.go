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
	p.Store("start info", x86.EBX)
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
	if at := p.options.PowerOffAt; at > 0 {
		p.OpImm(x86.Cmp, x86.EBP, at)
		p.J(x86.Equal, "power off")
	}
	switch {
	case p.options.Idle:
		p.Label("idle")
		p.Hlt() // interrupts are off
		p.Jmp("idle")
	case p.options.Flood:
		p.Call("poll")
	default:
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

// key acts on the character in EAX.
func (p *program) key() {
	p.Label("key")
	for _, k := range []struct {
		char   uint32
		target string
	}{{'\n', "key end"}, {'\r', "key end"}, {KeyPowerOff, "power off"}, {KeySuspend, "suspend"}, {KeyReset, "reset"}, {KeyVerify, "verify"}} {
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
	for _, word := range []string{"start info", "pm base", "event byte", "pci registers", "vcpu registers", "window low", "window high", "pause start", "pause left", "sum"} {
		p.Label(word)
		p.Space(4)
	}
	p.tables()
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
