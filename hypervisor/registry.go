package hypervisor

import (
	"context"
	"fmt"
	"strings"
)

// Registry holds hypervisors by name, the preferred one first. It doesn't change once made, so it may be shared.
type Registry struct {
	ordered []Hypervisor
	byName  map[string]Hypervisor
}

// New makes a Registry. The order is that in which automatic choice prefers them. An empty name, "auto" and a name given twice
// are errors.
func New(ordered ...Hypervisor) (*Registry, error) {
	r := &Registry{byName: make(map[string]Hypervisor, len(ordered))}
	for _, h := range ordered {
		name := h.Name()
		if name == "" || name == NameAuto {
			return nil, fmt.Errorf("hypervisor: %q can't be a hypervisor's name", name)
		}
		if r.byName[name] != nil {
			return nil, fmt.Errorf("hypervisor: %s is registered twice", name)
		}
		r.byName[name] = h
		r.ordered = append(r.ordered, h)
	}
	return r, nil
}

// Get returns the hypervisor of that name; false if there is none.
func (r *Registry) Get(name string) (Hypervisor, bool) {
	h, ok := r.byName[name]
	return h, ok
}

// All returns the hypervisors, the preferred one first.
func (r *Registry) All() []Hypervisor {
	return append([]Hypervisor(nil), r.ordered...)
}

// Names returns the names, the preferred one first.
func (r *Registry) Names() []string {
	names := make([]string, 0, len(r.ordered))
	for _, h := range r.ordered {
		names = append(names, h.Name())
	}
	return names
}

// UnknownError says that a name stands for no hypervisor.
type UnknownError struct {
	Requested string
	Known     []string
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("unknown hypervisor %q: choose %s or %s", e.Requested, NameAuto, strings.Join(e.Known, ", "))
}

// UnusableError says that a hypervisor, or with the name "auto" every one, can't run guests here.
type UnusableError struct {
	Name   string
	Status Status
}

func (e *UnusableError) Error() string {
	return fmt.Sprintf("hypervisor %s can't be used here: %s", e.Name, e.Status.Sentence())
}

// Choose picks a hypervisor. "auto" and "" take the first that works; a name takes that one, also when it is degraded.
// The reason is a plain sentence for the user. The error is *UnknownError, *UnusableError, or ctx's.
func (r *Registry) Choose(ctx context.Context, requested string) (Hypervisor, string, error) {
	if requested == "" || requested == NameAuto {
		return r.auto(ctx)
	}
	h, ok := r.byName[requested]
	if !ok {
		return nil, "", &UnknownError{Requested: requested, Known: r.Names()}
	}
	s := h.Check(ctx)
	if err := ctx.Err(); err != nil {
		return nil, "", fmt.Errorf("hypervisor %s: the check was given up: %w", requested, err)
	}
	switch s.Level {
	case Works:
		return h, requested + " was asked for and works", nil
	case Degraded:
		return h, fmt.Sprintf("%s was asked for and is used although it is degraded: %s", requested, s.Sentence()), nil
	}
	return nil, "", &UnusableError{Name: requested, Status: s}
}

func (r *Registry) auto(ctx context.Context) (Hypervisor, string, error) {
	var passed []string
	for _, h := range r.ordered {
		s := h.Check(ctx)
		if err := ctx.Err(); err != nil {
			return nil, "", fmt.Errorf("hypervisor %s: the check was given up: %w", h.Name(), err)
		}
		if s.Level == Works {
			return h, autoReason(h, passed), nil
		}
		passed = append(passed, fmt.Sprintf("%s is %s (%s)", h.Name(), s.Level, s.Sentence()))
	}
	if len(passed) == 0 {
		passed = append(passed, "none is registered")
	}
	return nil, "", &UnusableError{Name: NameAuto, Status: Status{Reason: strings.Join(passed, "; ")}}
}

func autoReason(h Hypervisor, passed []string) string {
	if len(passed) == 0 {
		return h.Name() + " works"
	}
	return fmt.Sprintf("%s, because %s", h.Name(), strings.Join(passed, "; "))
}
