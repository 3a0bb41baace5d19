package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vmlet/vmlet/hypervisor"
)

// A round of the trial guest adds the numbers from trialIterations down to 1 to a word of memory, three instructions a number. It
// is short enough for a processor of a million instructions a second to end it in 30 ms, and long enough for the exits around it
// not to matter.
const (
	trialIterations   = 10_000
	trialInstructions = 3 * trialIterations
	trialWant         = uint32(trialIterations * (trialIterations + 1) / 2)
)

// trialRounds is how often the guest is measured in long mode before it is called slow: the fastest round counts, so that
// one that was disturbed doesn't.
const trialRounds = 3

// speedFloor, in instructions a second, divides hardware from emulation. The trial's loop runs at about a thousand million on
// hardware however old, also nested, and at a few million where the kernel emulates each instruction, as a KVM does that has no
// hardware under it; QEMU's TCG makes some hundred million of it.
const speedFloor = 50_000_000

// outcome is what a trial guest came to: the CPU time of each finished round by mode, whether the atomic instruction after the
// first round in long mode worked, and what broke the trial off if something did.
type outcome struct {
	protected, long []time.Duration
	atomic          bool
	failure         error
}

// speed is that of the fastest round in long mode, in instructions a second; 0 if there was none.
func (o outcome) speed() uint64 {
	if len(o.long) == 0 {
		return 0
	}
	fastest := max(slices.Min(o.long), time.Microsecond) // a clock coarser than the round doesn't make it infinitely fast
	return uint64(trialInstructions) * uint64(time.Second) / uint64(fastest)
}

func (o outcome) fast() bool { return o.speed() >= speedFloor }

// enough reports whether running on would tell nothing more.
func (o outcome) enough() bool { return o.atomic && (o.fast() || len(o.long) >= trialRounds) }

// verdict says what a trial's outcome means for real guests.
func verdict(o outcome) hypervisor.Status {
	s := hypervisor.Status{Level: hypervisor.Degraded, InstructionsPerSecond: o.speed()}
	switch {
	case len(o.long) == 0 && errors.Is(o.failure, context.DeadlineExceeded):
		s.Level = hypervisor.Unusable
		s.Reason = fmt.Sprintf("KVM makes virtual machines, but the trial guest had no end within %v", trialLimit)
		s.Remedy = "this machine may be busy: ask again; if it stays so, look at the kernel's log (dmesg)"
	case len(o.protected) == 0:
		s.Level = hypervisor.Unusable
		s.Reason = fmt.Sprintf("KVM makes virtual machines but doesn't run a trial guest: %v", o.failure)
		s.Remedy = "look at the kernel's log (dmesg); if this machine is itself a guest, at nested virtualisation in the outer hypervisor"
	case len(o.long) == 0:
		s.Reason = fmt.Sprintf("KVM here runs 32-bit guests only: when the trial guest went to 64-bit mode, %v", o.failure)
		s.Remedy = "if this machine is itself a guest, look at nested virtualisation in the outer hypervisor"
		s.Limits = []string{"no 64-bit guests"}
	case !o.fast():
		// Without the speed itself, which no two trials agree on: it is in InstructionsPerSecond.
		s.Reason = fmt.Sprintf("KVM here emulates each instruction, fewer than %d million a second: emulation (TCG) is faster", speedFloor/1_000_000)
		s.Remedy = "use the processor's own virtualisation (kvm_intel, kvm_amd; if this machine is itself a guest, through nested virtualisation)"
		s.Limits = append([]string{"guests run many times slower than under emulation: small ones only"}, o.atomicLimit()...)
	case !o.atomic:
		s.Reason = fmt.Sprintf("KVM here doesn't run 64-bit Linux: at a 16-byte atomic instruction (cmpxchg16b) %v", o.failure)
		s.Remedy = "look at the kernel's log (dmesg); if this machine is itself a guest, at nested virtualisation in the outer hypervisor"
		s.Limits = o.atomicLimit()
	default:
		s.Level = hypervisor.Works
	}
	return s
}

func (o outcome) atomicLimit() []string {
	if o.atomic {
		return nil
	}
	return []string{fmt.Sprintf("64-bit Linux doesn't boot: at a 16-byte atomic instruction (cmpxchg16b) %v", o.failure)}
}
