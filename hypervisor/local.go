package hypervisor

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Local is a Registry of one node: its hypervisors can be tried, and one of them chosen. It doesn't change once made, so it may
// be shared.
type Local struct {
	*Registry
	ordered []Hypervisor
}

// NewLocal makes a Local. The order, and what is an error, are New's.
func NewLocal(ordered ...Hypervisor) (*Local, error) {
	kinds := make([]Kind, 0, len(ordered))
	for _, h := range ordered {
		kinds = append(kinds, h)
	}
	r, err := New(kinds...)
	if err != nil {
		return nil, err
	}
	return &Local{Registry: r, ordered: slices.Clone(ordered)}, nil
}

// Get returns the hypervisor of that name; false if there is none.
func (l *Local) Get(name string) (Hypervisor, bool) {
	i := slices.IndexFunc(l.ordered, func(h Hypervisor) bool { return h.Name() == name })
	if i < 0 {
		return nil, false
	}
	return l.ordered[i], true
}

// All returns the hypervisors, the preferred one first.
func (l *Local) All() []Hypervisor { return slices.Clone(l.ordered) }

// UnusableError says that a hypervisor, or with the name "auto" every one, can't run guests here.
type UnusableError struct {
	Name   string
	Status Status
}

func (e *UnusableError) Error() string {
	return fmt.Sprintf("hypervisor %s can't be used here: %s", e.Name, e.Status.Sentence())
}

// Choose picks a hypervisor. "auto" and "" take the first that works and under which the VMM runs guests, which runs says (the
// error is why not; nil stands for a VMM that runs under all), or where there is none, the first of those that are degraded; a name
// takes that one, also when it is degraded.
// The reason is a plain sentence for the user, without remedies, which an error has. The error is *UnknownError, *UnusableError, or ctx's.
func (l *Local) Choose(ctx context.Context, requested string, runs func(Hypervisor) error) (Hypervisor, string, error) {
	if requested == "" || requested == NameAuto {
		return l.auto(ctx, runs)
	}
	h, ok := l.Get(requested)
	if !ok {
		return nil, "", &UnknownError{Requested: requested, Known: l.Names()}
	}
	s := h.Check(ctx)
	if err := ctx.Err(); err != nil {
		return nil, "", fmt.Errorf("hypervisor %s: the check was given up: %w", requested, err)
	}
	switch s.Level {
	case Works:
		return h, requested + " was asked for and works", nil
	case Degraded:
		return h, fmt.Sprintf("%s was asked for and is used although it is degraded: %s", requested, s.Reason), nil
	}
	return nil, "", &UnusableError{Name: requested, Status: s}
}

func (l *Local) auto(ctx context.Context, runs func(Hypervisor) error) (Hypervisor, string, error) {
	var passed passedOver
	var slow Hypervisor // the first that is degraded
	for _, h := range l.ordered {
		s := h.Check(ctx)
		if err := ctx.Err(); err != nil {
			return nil, "", fmt.Errorf("hypervisor %s: the check was given up: %w", h.Name(), err)
		}
		var err error
		if runs != nil && s.Level != Unusable {
			err = runs(h)
		}
		switch {
		case err == nil && s.Level == Works:
			return h, autoReason(h, passed), nil
		case err == nil && s.Level == Degraded && slow == nil:
			slow = h
		}
		passed = append(passed, passing{h, s, err})
	}
	if slow != nil {
		return slow, fmt.Sprintf("%s, although it is degraded, as nothing better can be had: %s", slow.Name(), passed.brief()), nil
	}
	if len(passed) == 0 {
		return nil, "", &UnusableError{Name: NameAuto, Status: Status{Reason: "none is registered"}}
	}
	return nil, "", &UnusableError{Name: NameAuto, Status: Status{Reason: passed.join(Status.Sentence)}}
}

// passing is a hypervisor that isn't taken; err is why not with this VMM.
type passing struct {
	h   Hypervisor
	s   Status
	err error
}

type passedOver []passing

// brief says why in passing, without what can be done: `vmlet probe` has that.
func (p passedOver) brief() string { return p.join(func(s Status) string { return s.Reason }) }

func (p passedOver) join(words func(Status) string) string {
	var all []string
	for _, one := range p {
		all = append(all, one.sentence(words(one.s)))
	}
	return strings.Join(all, "; ")
}

func (p passing) sentence(words string) string {
	switch {
	case p.s.Level == Works:
		return fmt.Sprintf("%s works, but not with this VMM (%v)", p.h.Name(), p.err)
	case p.err != nil:
		return fmt.Sprintf("%s is %s (%s), and not available with this VMM (%v)", p.h.Name(), p.s.Level, words, p.err)
	}
	return fmt.Sprintf("%s is %s (%s)", p.h.Name(), p.s.Level, words)
}

func autoReason(h Hypervisor, passed passedOver) string {
	if len(passed) == 0 {
		return h.Name() + " works"
	}
	return fmt.Sprintf("%s, because %s", h.Name(), passed.brief())
}
