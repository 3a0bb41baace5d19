// Package pairing chooses what a VM runs with: the VMM and the hypervisor. Not
// every one runs with every other. It is the same choice for a VM that is
// started and for what a node says it would choose.
package pairing

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/hypervisor"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/vmm"
)

// Node is what a VMM may be paired with at a place.
type Node struct {
	// Hypervisors there are, and the one that is wanted; "auto" and "": any.
	Hypervisors *hypervisor.Local
	Hypervisor  string
	// Forbidden are the hypervisors, by name, that a VM at that place can't have, and why.
	Forbidden map[string]error
}

// Candidate is a VMM with the hypervisor that it would get.
type Candidate struct {
	VMM string
	// Hypervisor is nil where the VMM can have none.
	Hypervisor       hypervisor.Hypervisor
	HypervisorReason string
	// Err is why it can't be taken; nil: it can.
	Err error

	degraded bool
	rank     int // less for a better hypervisor
}

// Pair is what was chosen, and why: sentences for people, in one line each.
type Pair struct {
	VMM              string
	VMMReason        string
	Hypervisor       hypervisor.Hypervisor
	HypervisorReason string
}

// Candidate pairs a VMM that can do this with the first hypervisor that works with it. What
// a VM asks for never makes a VMM take another hypervisor. An err is why the VMM can't be
// used. Err is an *UnusableError then, or else one of hypervisor.Registry.Choose.
func (n Node) Candidate(ctx context.Context, name string, can *capabilitiesv1.VmmCapabilities, err error) Candidate {
	c := Candidate{VMM: name}
	if err != nil {
		c.Err = &UnusableError{name, err}
		return c
	}
	h, reason, err := n.Hypervisors.Choose(ctx, n.Hypervisor, func(h hypervisor.Hypervisor) error {
		if err := n.Forbidden[h.Name()]; err != nil {
			return err
		}
		return vmm.RunsUnder(can, h.Name())
	})
	if err != nil {
		c.Err = err
		return c
	}
	// One that was asked for by name is taken whatever was said of it.
	if err := n.Forbidden[h.Name()]; err != nil {
		c.Err = fmt.Errorf("hypervisor: %w", err)
		return c
	}
	c.Hypervisor, c.HypervisorReason = h, reason
	if err := vmm.RunsUnder(can, h.Name()); err != nil {
		c.Err = &hypervisor.UnusableError{Name: h.Name(), Status: hypervisor.Status{Reason: "not with this VMM: " + err.Error()}}
	}
	n.rate(ctx, &c)
	return c
}

// rate ranks a hypervisor: 0 for the first, and for one that is wanted by name. All that are
// degraded come after those that work.
func (n Node) rate(ctx context.Context, c *Candidate) {
	if n.Hypervisor != "" && n.Hypervisor != hypervisor.NameAuto {
		return // none is better
	}
	names := n.Hypervisors.Names()
	c.rank = slices.Index(names, c.Hypervisor.Name())
	if c.Hypervisor.Check(ctx).Level != hypervisor.Works {
		c.degraded = true
		c.rank += len(names)
	}
}

// Refuse says that the VMM can't run a VM under its hypervisor. It counts more than what was
// known of the two.
func (c *Candidate) Refuse(err error) {
	c.Err = &RefusedError{c.VMM, c.Hypervisor.Name(), err}
}

// Choose takes the candidate with the preferred hypervisor: emulation is much slower than any
// other, and one that is degraded is worse. Of several under that, it is the first. It looks
// at no more candidates than it must. because is why there is no choice among them; empty:
// there is.
//
// Where there is one candidate only, the error is its own. Else it is a *NoneError. When ctx
// ends it is ctx's.
func Choose(ctx context.Context, candidates iter.Seq[Candidate], because string) (Pair, error) {
	var best *Candidate
	var passed []string // why those before the best aren't taken
	var none NoneError
	for c := range candidates {
		if err := ctx.Err(); err != nil {
			return Pair{}, fmt.Errorf("choosing a VMM: %w", errors.Join(err, c.Err))
		}
		switch {
		case c.Err != nil:
			none.Refusals = append(none.Refusals, Refusal{c.VMM, c.Err})
			if best == nil {
				passed = append(passed, sentence(c.VMM, c.Err))
			}
			continue
		case best == nil:
		case c.rank < best.rank:
			passed = append(passed, fmt.Sprintf("%s would run it under %s only", best.VMM, best.under()))
		default:
			continue
		}
		best = &c
		if c.rank == 0 {
			break // none is better
		}
	}
	switch {
	case best != nil:
		return Pair{best.VMM, reason(best.VMM, because, passed), best.Hypervisor, best.HypervisorReason}, nil
	case len(none.Refusals) == 0:
		return Pair{}, errors.New("there is no VMM")
	}
	return Pair{}, none.err()
}

// under is the hypervisor, for people.
func (c *Candidate) under() string {
	if c.degraded {
		return "a degraded " + c.Hypervisor.Name()
	}
	return c.Hypervisor.Name()
}

func reason(name, because string, passed []string) string {
	switch {
	case because != "":
		return name + " " + because
	case len(passed) == 0:
		return name + ": the node's first choice"
	}
	return name + ": " + strings.Join(passed, "; ")
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
