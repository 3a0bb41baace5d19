package x86_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/test/guest/x86"
)

// The bytes wanted are those that GNU as makes of the same instructions.
func TestEncodings(t *testing.T) {
	for _, test := range []struct {
		name string
		emit func(a *x86.Asm)
		want []byte
	}{
		{"mov $0x3f8,%edx", func(a *x86.Asm) { a.MovImm(x86.EDX, 0x3f8) }, []byte{0xba, 0xf8, 0x03, 0, 0}},
		{"mov %eax,%ebx", func(a *x86.Asm) { a.Mov(x86.EBX, x86.EAX) }, []byte{0x89, 0xc3}},
		{"mov (%edx),%eax", func(a *x86.Asm) { a.LoadAt(x86.EAX, x86.EDX) }, []byte{0x8b, 0x02}},
		{"mov %eax,(%edi)", func(a *x86.Asm) { a.StoreAt(x86.EDI, x86.EAX) }, []byte{0x89, 0x07}},
		{"mov %al,(%edx)", func(a *x86.Asm) { a.StoreByteAt(x86.EDX, x86.EAX) }, []byte{0x88, 0x02}},
		{"mov (%edx),%al", func(a *x86.Asm) { a.LoadByteAt(x86.EAX, x86.EDX) }, []byte{0x8a, 0x02}},
		{"mov %eax,%cr3", func(a *x86.Asm) { a.SetControl(3, x86.EAX) }, []byte{0x0f, 0x22, 0xd8}},
		{"mov %cr4,%eax", func(a *x86.Asm) { a.Control(x86.EAX, 4) }, []byte{0x0f, 0x20, 0xe0}},
		{"sub %edx,%eax", func(a *x86.Asm) { a.Op(x86.Sub, x86.EAX, x86.EDX) }, []byte{0x29, 0xd0}},
		{"xor %edx,%eax", func(a *x86.Asm) { a.Op(x86.Xor, x86.EAX, x86.EDX) }, []byte{0x31, 0xd0}},
		{"cmp $0x100,%ecx", func(a *x86.Asm) { a.OpImm(x86.Cmp, x86.ECX, 0x100) }, []byte{0x81, 0xf9, 0, 1, 0, 0}},
		{"shl $13,%edx", func(a *x86.Asm) { a.Shl(x86.EDX, 13) }, []byte{0xc1, 0xe2, 13}},
		{"shr $17,%edx", func(a *x86.Asm) { a.Shr(x86.EDX, 17) }, []byte{0xc1, 0xea, 17}},
		{"rol $4,%eax", func(a *x86.Asm) { a.Rol(x86.EAX, 4) }, []byte{0xc1, 0xc0, 4}},
		{"imul $3,%ecx,%ecx", func(a *x86.Asm) { a.MulImm(x86.ECX, 3) }, []byte{0x69, 0xc9, 3, 0, 0, 0}},
		{"div %ebx", func(a *x86.Asm) { a.Div(x86.EBX) }, []byte{0xf7, 0xf3}},
		{"test $1,%eax", func(a *x86.Asm) { a.TestImm(x86.EAX, 1) }, []byte{0xf7, 0xc0, 1, 0, 0, 0}},
		{"in (%dx),%ax", func(a *x86.Asm) { a.InWord() }, []byte{0x66, 0xed}},
		{"jmp back", func(a *x86.Asm) { a.Label("l"); a.Jmp("l") }, []byte{0xe9, 0xfb, 0xff, 0xff, 0xff}},
		{"je forward", func(a *x86.Asm) { a.J(x86.Equal, "l"); a.Hlt(); a.Label("l") }, []byte{0x0f, 0x84, 1, 0, 0, 0, 0xf4}},
		{"mov label,%eax", func(a *x86.Asm) { a.Load(x86.EAX, "l"); a.Label("l") }, []byte{0x8b, 0x05, 6, 0, 0x10, 0}},
		{"mov %eax,label", func(a *x86.Asm) { a.Store("l", x86.EAX); a.Label("l") }, []byte{0x89, 0x05, 6, 0, 0x10, 0}},
		{"mov $label,%esi", func(a *x86.Asm) { a.MovAddr(x86.ESI, "l"); a.Label("l") }, []byte{0xbe, 5, 0, 0x10, 0}},
		{".long label+3", func(a *x86.Asm) { a.Hlt(); a.DataAddr("l", 3); a.Label("l") }, []byte{0xf4, 8, 0, 0x10, 0}},
		{"aligned", func(a *x86.Asm) { a.Hlt(); a.Align(4); a.Data([]byte{1}) }, []byte{0xf4, 0, 0, 0, 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := x86.New(0x100000)
			test.emit(a)
			got, err := a.Bytes()
			if err != nil || !bytes.Equal(got, test.want) {
				t.Errorf("got % x, %v; want % x", got, err, test.want)
			}
		})
	}
}

func TestLabelFaults(t *testing.T) {
	for _, test := range []struct {
		name string
		emit func(a *x86.Asm)
		want string
	}{
		{"missing", func(a *x86.Asm) { a.Jmp("nowhere") }, `"nowhere"`},
		{"twice", func(a *x86.Asm) { a.Label("here"); a.Label("here") }, `"here"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := x86.New(0)
			test.emit(a)
			if _, err := a.Bytes(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v does not name %s", err, test.want)
			}
		})
	}
}
