// Package x86 is an assembler for the few 32-bit x86 instructions that the
// tests' own guest is made of. Encodings are those of the Intel 64 and IA-32
// Architectures Software Developer's Manual, volume 2.
//
// Memory operands are absolute addresses only, and jumps always take the long
// form: the guest is small, and one form of each is easier to trust.
package x86

import (
	"encoding/binary"
	"fmt"
)

// Reg is a 32-bit general register; its value is the register's number in an
// instruction.
type Reg byte

// The general registers.
const (
	EAX Reg = iota
	ECX
	EDX
	EBX
	ESP
	EBP
	ESI
	EDI
)

// Cond is a condition of [Asm.J]; its value is the low half of the opcode.
type Cond byte

// Conditions, after an unsigned comparison.
const (
	Below        Cond = 0x2
	AboveOrEqual Cond = 0x3
	Zero         Cond = 0x4
	NotZero      Cond = 0x5
	Equal             = Zero
	NotEqual          = NotZero
)

// Op is an arithmetic operation with two operands; its value is the number
// that group 1 of the opcode map gives it.
type Op byte

// Arithmetic operations.
const (
	Add Op = 0
	Or  Op = 1
	And Op = 4
	Sub Op = 5
	Xor Op = 6
	Cmp Op = 7
)

// Asm assembles code that runs at a fixed address. The zero value is not
// usable: see [New]. It is not safe for concurrent use.
type Asm struct {
	base   uint32
	code   []byte
	labels map[string]uint32
	fixups []fixup
	err    error
}

// fixup is a 32-bit field that a label's address goes into once it is known.
type fixup struct {
	at       int // offset of the field in code
	label    string
	offset   uint32
	relative bool // to the end of the field, as jumps want it
}

// New returns an assembler for code that will be loaded at the physical
// address base.
func New(base uint32) *Asm {
	return &Asm{base: base, labels: make(map[string]uint32)}
}

// Bytes resolves all labels and returns the code. The error names a label that
// is missing or was set twice.
func (a *Asm) Bytes() ([]byte, error) {
	if a.err != nil {
		return nil, a.err
	}
	for _, f := range a.fixups {
		target, ok := a.labels[f.label]
		if !ok {
			return nil, fmt.Errorf("label %q is used but never set", f.label)
		}
		target += f.offset
		if f.relative {
			target -= a.base + uint32(f.at) + 4
		}
		binary.LittleEndian.PutUint32(a.code[f.at:], target)
	}
	return a.code, nil
}

// Label names the address of what comes next.
func (a *Asm) Label(name string) {
	if _, ok := a.labels[name]; ok && a.err == nil {
		a.err = fmt.Errorf("label %q is set twice", name)
	}
	a.labels[name] = a.base + uint32(len(a.code))
}

// Align pads with zeros to a multiple of n bytes from the base.
func (a *Asm) Align(n int) {
	for len(a.code)%n != 0 {
		a.emit(0)
	}
}

// Data puts bytes into the code as they are.
func (a *Asm) Data(b []byte) { a.emit(b...) }

// DataAddr puts the address of a label plus an offset into the code.
func (a *Asm) DataAddr(label string, offset uint32) {
	a.ref(label, false)
	a.fixups[len(a.fixups)-1].offset = offset
}

// Space puts n zero bytes into the code.
func (a *Asm) Space(n int) { a.emit(make([]byte, n)...) }

func (a *Asm) emit(b ...byte) { a.code = append(a.code, b...) }

func (a *Asm) emit32(v uint32) { a.code = binary.LittleEndian.AppendUint32(a.code, v) }

func (a *Asm) ref(label string, relative bool) {
	a.fixups = append(a.fixups, fixup{at: len(a.code), label: label, relative: relative})
	a.emit32(0)
}

// registers is a ModRM byte with two registers.
func registers(reg, rm Reg) byte { return 0xc0 | byte(reg)<<3 | byte(rm) }

// absolute is a ModRM byte with a register and a 32-bit address.
func absolute(reg Reg) byte { return byte(reg)<<3 | 0x05 }

// MovImm sets r to a constant.
func (a *Asm) MovImm(r Reg, v uint32) { a.emit(0xb8 | byte(r)); a.emit32(v) }

// MovAddr sets r to the address of a label.
func (a *Asm) MovAddr(r Reg, label string) { a.emit(0xb8 | byte(r)); a.ref(label, false) }

// Mov copies src to dst.
func (a *Asm) Mov(dst, src Reg) { a.emit(0x89, registers(src, dst)) }

// Load reads the 32-bit word at a label into r.
func (a *Asm) Load(r Reg, label string) { a.emit(0x8b, absolute(r)); a.ref(label, false) }

// Store writes r to the 32-bit word at a label.
func (a *Asm) Store(label string, r Reg) { a.emit(0x89, absolute(r)); a.ref(label, false) }

// LoadAt reads the 32-bit word that base points to into r. ESP and EBP cannot
// be the base in this form.
func (a *Asm) LoadAt(r, base Reg) { a.emit(0x8b, byte(r)<<3|byte(base)) }

// StoreAt writes r to the 32-bit word that base points to. ESP and EBP cannot
// be the base in this form.
func (a *Asm) StoreAt(base, r Reg) { a.emit(0x89, byte(r)<<3|byte(base)) }

// LoadByteAt reads the byte that base points to into the low byte of r, one of
// EAX to EBX; the rest of r stays. ESP and EBP cannot be the base in this form.
func (a *Asm) LoadByteAt(r, base Reg) { a.emit(0x8a, byte(r)<<3|byte(base)) }

// StoreByteAt writes the low byte of r, one of EAX to EBX, to the byte that
// base points to.
func (a *Asm) StoreByteAt(base, r Reg) { a.emit(0x88, byte(r)<<3|byte(base)) }

// OpImm applies op to r and a constant.
func (a *Asm) OpImm(op Op, r Reg, v uint32) { a.emit(0x81, registers(Reg(op), r)); a.emit32(v) }

// Op applies op to dst and src.
func (a *Asm) Op(op Op, dst, src Reg) { a.emit(byte(op)<<3|0x01, registers(src, dst)) }

// Shl shifts r left by n bits.
func (a *Asm) Shl(r Reg, n byte) { a.emit(0xc1, registers(4, r), n) }

// Shr shifts r right by n bits, filling with zeros.
func (a *Asm) Shr(r Reg, n byte) { a.emit(0xc1, registers(5, r), n) }

// Rol turns r left by n bits.
func (a *Asm) Rol(r Reg, n byte) { a.emit(0xc1, registers(0, r), n) }

// MulImm multiplies r by a constant, keeping the low 32 bits.
func (a *Asm) MulImm(r Reg, v uint32) { a.emit(0x69, registers(r, r)); a.emit32(v) }

// Div divides EDX:EAX by r: the quotient goes to EAX, the remainder to EDX.
func (a *Asm) Div(r Reg) { a.emit(0xf7, registers(6, r)) }

// TestImm sets the flags for r AND a constant.
func (a *Asm) TestImm(r Reg, v uint32) { a.emit(0xf7, registers(0, r)); a.emit32(v) }

// Inc adds one to r.
func (a *Asm) Inc(r Reg) { a.emit(0x40 | byte(r)) }

// Dec subtracts one from r.
func (a *Asm) Dec(r Reg) { a.emit(0x48 | byte(r)) }

// Push puts r on the stack.
func (a *Asm) Push(r Reg) { a.emit(0x50 | byte(r)) }

// Pop takes r off the stack.
func (a *Asm) Pop(r Reg) { a.emit(0x58 | byte(r)) }

// Jmp goes on at a label.
func (a *Asm) Jmp(label string) { a.emit(0xe9); a.ref(label, true) }

// J goes on at a label if a condition holds.
func (a *Asm) J(c Cond, label string) { a.emit(0x0f, 0x80|byte(c)); a.ref(label, true) }

// Call calls the function at a label.
func (a *Asm) Call(label string) { a.emit(0xe8); a.ref(label, true) }

// Ret returns from a function.
func (a *Asm) Ret() { a.emit(0xc3) }

// InByte reads the I/O port in DX into AL.
func (a *Asm) InByte() { a.emit(0xec) }

// InWord reads the I/O port in DX into AX.
func (a *Asm) InWord() { a.emit(0x66, 0xed) }

// InLong reads the I/O port in DX into EAX.
func (a *Asm) InLong() { a.emit(0xed) }

// OutByte writes AL to the I/O port in DX.
func (a *Asm) OutByte() { a.emit(0xee) }

// OutWord writes AX to the I/O port in DX.
func (a *Asm) OutWord() { a.emit(0x66, 0xef) }

// OutLong writes EAX to the I/O port in DX.
func (a *Asm) OutLong() { a.emit(0xef) }

// LoadByte reads the byte at ESI into AL and moves ESI on.
func (a *Asm) LoadByte() { a.emit(0xac) }

// CopyLongs copies ECX 32-bit words from ESI to EDI.
func (a *Asm) CopyLongs() { a.emit(0xf3, 0xa5) }

// CompareLongs compares up to ECX 32-bit words at ESI and EDI, and ends with
// both behind the first pair that differs.
func (a *Asm) CompareLongs() { a.emit(0xf3, 0xa7) }

// ReadTSC reads the time stamp counter into EDX:EAX.
func (a *Asm) ReadTSC() { a.emit(0x0f, 0x31) }

// ClearDirection makes string instructions move upwards.
func (a *Asm) ClearDirection() { a.emit(0xfc) }

// SetControl sets the control register of a number.
func (a *Asm) SetControl(n byte, r Reg) { a.emit(0x0f, 0x22, registers(Reg(n), r)) }

// Control reads the control register of a number into r.
func (a *Asm) Control(r Reg, n byte) { a.emit(0x0f, 0x20, registers(Reg(n), r)) }

// ReadMSR reads the model specific register in ECX into EDX:EAX.
func (a *Asm) ReadMSR() { a.emit(0x0f, 0x32) }

// WriteMSR sets the model specific register in ECX to EDX:EAX.
func (a *Asm) WriteMSR() { a.emit(0x0f, 0x30) }

// Cli masks interrupts.
func (a *Asm) Cli() { a.emit(0xfa) }

// Hlt stops the processor until an interrupt.
func (a *Asm) Hlt() { a.emit(0xf4) }
