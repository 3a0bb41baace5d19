package guest

import (
	"errors"
	"fmt"

	"github.com/vmlet/vmlet/test/guest/x86"
)

// What the PVH guest writes to its first serial port, a line each.
const (
	UpLine       = "vmlet guest up"
	CountPrefix  = "count "    // followed by a decimal number, from 0 after each boot
	EchoPrefix   = "echo "     // followed by the character that was read
	FilledPrefix = "filled "   // followed by the number of MiB
	VerifyPrefix = "verified " // followed by [Pattern.Sum], eight hexadecimal digits
	CorruptLine  = "corrupt "  // followed by the physical address, eight hexadecimal digits
	PowerLine    = "power button"
)

// Keys that the PVH guest acts on when they come in on its console. It answers
// any other character with [EchoPrefix] and that character; line ends are
// ignored.
const (
	KeyVerify   = 'v' // compare memory with the pattern; only with [PVHOptions].Memory
	KeyPowerOff = 'q'
	KeyReset    = 'r'
	KeySuspend  = 'h' // as a guest that suspends itself to disk (ACPI S4); where there is none it powers off
)

// PVHOptions choose a variant of the PVH guest.
type PVHOptions struct {
	// Memory is filled once at boot, before the first count. The zero Pattern
	// fills nothing.
	Memory Pattern
	// IgnorePowerButton makes a guest that reports an ACPI power button press
	// and goes on, as one does that hangs while shutting down.
	IgnorePowerButton bool
	// KeepDevices makes a guest that doesn't let go of a device or a vCPU that is
	// removed. Only on cloud-hypervisor, and in its first PCI segment, does any
	// PVH guest.
	KeepDevices bool
	// Flood makes a guest that counts as fast as it can.
	Flood bool
	// Idle makes a guest that counts once and then halts for good: it takes no
	// processor, and answers nothing.
	Idle bool
	// PowerOffAt makes a guest that powers itself off once it has counted so far; 0: it does not.
	PowerOffAt uint32
}

// Pattern is a stretch of guest memory with known contents: pages of 4 KiB,
// all the same pseudorandom words but for the first word, which differs from
// page to page. A page that is lost, stale or in the wrong place is noticed,
// and so is any other changed bit.
type Pattern struct {
	// Address is physical, a multiple of 4 KiB and at least [PatternMin].
	Address uint32
	// MiB is the length; it must end below the hole for devices, so at most
	// at 2 GiB to be on the safe side of every machine type.
	MiB uint32
	// Seed must not be 0.
	Seed uint32
	// Words is how many 32-bit words at the start of each page are written and
	// checked, a power of two; 0 is all 1024. Few let a guest touch hundreds of
	// MiB under a KVM that emulates every instruction.
	Words uint32
}

// PatternMin is the lowest address for a [Pattern]: below it are the guest's
// own code and stack, and firmware.
const PatternMin = 4 << 20

const (
	patternEnd   = 2 << 30
	pageWords    = 1024
	pagesPerMiB  = 256
	pageHashing  = 0x9e3779b1 // odd, so that different pages get different words
	pvhBase      = 1 << 20    // where the guest is loaded: the first address above the legacy hole
	pvhStackSize = 4096
)

// validate reports everything that is wrong with the pattern.
func (p Pattern) validate() error {
	if p == (Pattern{}) {
		return nil
	}
	var errs []error
	if p.Address < PatternMin || p.Address%4096 != 0 {
		errs = append(errs, fmt.Errorf("Pattern.Address is %#x: want a multiple of 0x1000, at least %#x", p.Address, PatternMin))
	}
	if p.MiB == 0 || uint64(p.Address)+uint64(p.MiB)<<20 > patternEnd {
		errs = append(errs, fmt.Errorf("Pattern.MiB is %d: want at least 1, ending at most at %#x", p.MiB, patternEnd))
	}
	if p.Seed == 0 {
		errs = append(errs, errors.New("Pattern.Seed is 0: want any other number"))
	}
	if p.Words > pageWords || p.Words&(p.Words-1) != 0 {
		errs = append(errs, fmt.Errorf("Pattern.Words is %d: want a power of two, at most %d", p.Words, pageWords))
	}
	return errors.Join(errs...)
}

// perPage is Words with its default.
func (p Pattern) perPage() uint32 {
	if p.Words == 0 {
		return pageWords
	}
	return p.Words
}

// words is the page that all pages of the pattern are made from.
func (p Pattern) words() []uint32 {
	page := make([]uint32, p.perPage())
	x := p.Seed
	for i := range page {
		x = xorshift(x)
		page[i] = x
	}
	return page
}

// Page returns the words of the n-th page of the pattern, counted from Address,
// for a comparison from outside the guest.
func (p Pattern) Page(n uint32) []uint32 {
	page := p.words()
	page[0] = p.first(n)
	return page
}

// first is the word that makes the n-th page differ from the others. The guest
// counts pages downwards to 1, which costs it one instruction less.
func (p Pattern) first(n uint32) uint32 {
	return (p.MiB*pagesPerMiB-n)*pageHashing ^ p.Seed
}

// Sum is what the guest prints after [VerifyPrefix] if memory is right. It is
// made from one word of each page as the guest found it.
func (p Pattern) Sum() uint32 {
	page := p.words()
	var sum uint32
	for left := p.MiB * pagesPerMiB; left > 0; left-- {
		page[0] = left*pageHashing ^ p.Seed
		sum = (sum<<1 | sum>>31) + page[left%p.perPage()]
	}
	return sum
}

// xorshift is one step of Marsaglia's 32-bit generator (Xorshift RNGs, Journal
// of Statistical Software 8, 2003).
func xorshift(x uint32) uint32 {
	x ^= x << 13
	x ^= x >> 17
	x ^= x << 5
	return x
}

// PVH returns an ELF file that QEMU boots with -kernel, on q35, pc and
// microvm, and cloud-hypervisor with --kernel: a guest that counts on its first serial port, answers what is typed
// there, powers off when its ACPI power button is pressed, and checks its
// memory when asked.
func PVH(o PVHOptions) ([]byte, error) {
	if err := o.Memory.validate(); err != nil {
		return nil, err
	}
	p := program{Asm: x86.New(pvhBase), options: o}
	p.main()
	p.pause()
	p.poll()
	p.key()
	p.power()
	p.events()
	p.eject()
	p.memory()
	p.print()
	p.data()
	code, err := p.Bytes()
	if err != nil {
		return nil, fmt.Errorf("assembling the PVH guest: %w", err)
	}
	return pvhELF(pvhBase, code, o)
}
