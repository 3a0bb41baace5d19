// Package pairing chooses what a VM runs with: the VMM and the hypervisor, of which
// not every one runs with every other. It is the same choice for a VM that is
// started and for what a node says it would choose.
package pairing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/hypervisor"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/vmm"
)

// Request is what a pair is chosen from.
type Request struct {
	// VMMs are the names of those there are, the preferred one first.
	VMMs []string
	// Because is why there is no choice among them; empty: there is.
	Because string
	// Hypervisors there are, and the one that is wanted; "auto" and "": any.
	Hypervisors *hypervisor.Registry
	Hypervisor  string

	// Ask says what a VMM can do. An error is why it can't be used.
	Ask func(ctx context.Context, vmm string) (*capabilitiesv1.VmmCapabilities, error)
	// Permits says why a hypervisor is not to be had where the VM is; nil: it is.
	// A nil Permits permits all.
	Permits func(hypervisor.Hypervisor) error
	// Accepts says why a VMM can't run this very VM under a hypervisor; nil: it
	// can. A nil Accepts is for no VM in particular.
	Accepts func(ctx context.Context, vmm string, h hypervisor.Hypervisor) error
}

// Pair is what was chosen, and why: sentences for people, in one line each.
type Pair struct {
	VMM              string
	VMMReason        string
	Hypervisor       hypervisor.Hypervisor
	HypervisorReason string

	degraded bool
	rank     int // less for a better hypervisor
}

// Choose takes each VMM with the first hypervisor that works with it, and of these
// pairs the one with the preferred hypervisor: emulation is much slower than any
// other, and one that is degraded is worse. Of several under that, it is the
// preferred VMM. What a VM asks for never
// makes a VMM take another hypervisor.
//
// Where there is one VMM only, the error is why it can't be used: *UnusableError,
// those of hypervisor.Registry.Choose, or what Permits and Accepts have said. Else it
// is a *NoneError. When ctx ends it is ctx's.
func Choose(ctx context.Context, r Request) (Pair, error) {
	if len(r.VMMs) == 0 {
		return Pair{}, errors.New("there is no VMM")
	}
	var best *Pair
	var passed []string // why those before the best aren't taken
	var none NoneError
	for _, name := range r.VMMs {
		pair, err := r.try(ctx, name)
		if errCtx := ctx.Err(); errCtx != nil {
			return Pair{}, fmt.Errorf("choosing a VMM: %w", errors.Join(errCtx, err))
		}
		switch {
		case err != nil:
			none.Refusals = append(none.Refusals, Refusal{name, err})
			if best == nil {
				passed = append(passed, sentence(name, err))
			}
			continue
		case best == nil:
		case pair.rank < best.rank:
			passed = append(passed, fmt.Sprintf("%s would run it under %s only", best.VMM, best.under()))
		default:
			continue
		}
		best = &pair
		if pair.rank == 0 || r.named() {
			break // none is better
		}
	}
	if best == nil {
		return Pair{}, none.err()
	}
	best.VMMReason = r.reason(best.VMM, passed)
	return *best, nil
}

// under is the hypervisor, for people.
func (p Pair) under() string {
	if p.degraded {
		return "a degraded " + p.Hypervisor.Name()
	}
	return p.Hypervisor.Name()
}

// named: one hypervisor is wanted.
func (r Request) named() bool { return r.Hypervisor != "" && r.Hypervisor != hypervisor.NameAuto }

// pair ranks a hypervisor: 0 for the first. All that are degraded come after those
// that work.
func (r Request) pair(ctx context.Context, vmm string, h hypervisor.Hypervisor, reason string) Pair {
	names := r.Hypervisors.Names()
	p := Pair{VMM: vmm, Hypervisor: h, HypervisorReason: reason, rank: slices.Index(names, h.Name())}
	if h.Check(ctx).Level != hypervisor.Works {
		p.degraded = true
		p.rank += len(names)
	}
	return p
}

func (r Request) reason(name string, passed []string) string {
	switch {
	case r.Because != "":
		return name + " " + r.Because
	case len(passed) == 0:
		return name + ": the node's first choice"
	}
	return name + ": " + strings.Join(passed, "; ")
}

// try is one VMM under the hypervisor that it would get.
func (r Request) try(ctx context.Context, name string) (Pair, error) {
	can, err := r.Ask(ctx, name)
	if err != nil {
		return Pair{}, &UnusableError{name, err}
	}
	permits := func(h hypervisor.Hypervisor) error {
		if r.Permits == nil {
			return nil
		}
		return r.Permits(h)
	}
	h, reason, err := r.Hypervisors.Choose(ctx, r.Hypervisor, func(h hypervisor.Hypervisor) error {
		if err := permits(h); err != nil {
			return err
		}
		return vmm.RunsUnder(can, h.Name())
	})
	if err != nil {
		return Pair{}, err
	}
	// One that was asked for by name is taken whatever was said of it.
	if err := permits(h); err != nil {
		return Pair{}, fmt.Errorf("hypervisor: %w", err)
	}
	if r.Accepts != nil {
		if err := r.Accepts(ctx, name, h); err != nil {
			return Pair{}, &RefusedError{name, h.Name(), err}
		}
	}
	if err := vmm.RunsUnder(can, h.Name()); err != nil {
		return Pair{}, &hypervisor.UnusableError{Name: h.Name(), Status: hypervisor.Status{Reason: "not with this VMM: " + err.Error()}}
	}
	return r.pair(ctx, name, h, reason), nil
}

// sentence says in one line why a VMM is passed over.
func sentence(name string, err error) string {
	var unusable *UnusableError
	if errors.As(err, &unusable) {
		if strings.HasPrefix(unusable.Err.Error(), name) {
			return oneLine(unusable.Err)
		}
		return fmt.Sprintf("%s can't be used (%s)", name, oneLine(unusable.Err))
	}
	var refused *RefusedError
	if errors.As(err, &refused) {
		err = refused.Err
	}
	return fmt.Sprintf("%s can't: %s", name, oneLine(err))
}

// maxSentence bounds what is quoted of an error, in bytes: a specification may have
// any number of faults.
const maxSentence = 500

func oneLine(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(text) > maxSentence {
		text = strings.ToValidUTF8(text[:maxSentence], "") + "..."
	}
	return text
}
