package hypervisor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/spec"
)

// Registry holds hypervisors by name, the preferred one first. It doesn't change once made, so it may be shared.
type Registry struct {
	ordered []Hypervisor
	byName  map[string]Hypervisor
	// aliases are other names, and whose they are.
	aliases map[string]string
	layers  spec.Layers
}

// New makes a Registry. The order is that in which automatic choice prefers them. A name that is given twice, "auto", an
// architecture's name, and one that is no single word are errors, and so are defaults under a key that is not the hypervisor's own.
func New(ordered ...Hypervisor) (*Registry, error) {
	r := &Registry{byName: make(map[string]Hypervisor, len(ordered)), aliases: make(map[string]string), layers: spec.BaseLayers()}
	for _, h := range ordered {
		name := h.Name()
		if !canBeName(name) {
			return nil, fmt.Errorf("hypervisor: %q can't be a hypervisor's name: want a word of lower-case letters, digits and '-' that is neither %q nor an architecture", name, NameAuto)
		}
		if r.byName[name] != nil {
			return nil, fmt.Errorf("hypervisor: %s is registered twice", name)
		}
		if err := r.addLayers(h); err != nil {
			return nil, err
		}
		r.byName[name] = h
		r.ordered = append(r.ordered, h)
	}
	if err := r.addAliases(); err != nil {
		return nil, err
	}
	return r, nil
}

// addAliases takes in the hypervisors' other names.
func (r *Registry) addAliases() error {
	for _, h := range r.ordered {
		a, ok := As[Aliased](h)
		if !ok {
			continue
		}
		for _, alias := range a.Aliases() {
			owner, taken := r.Canonical(alias)
			if taken || !canBeName(alias) {
				return fmt.Errorf("hypervisor: %q can't be another name of %s: it is no name, or that of %q", alias, h.Name(), owner)
			}
			r.aliases[alias] = h.Name()
		}
	}
	return nil
}

// Canonical returns the name of the hypervisor that a user means by a word: its name or an alias of
// it; false if there is none.
func (r *Registry) Canonical(word string) (name string, known bool) {
	if _, known := r.byName[word]; known {
		return word, true
	}
	name, known = r.aliases[word]
	return name, known
}

// canBeName keeps names apart from the other keys of defaults.
func canBeName(name string) bool {
	if name == "" || name == NameAuto || name == spec.ArchAMD64 || name == spec.ArchARM64 {
		return false
	}
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
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

// Words are all that users may call the hypervisors: their names, then other names, sorted.
func (r *Registry) Words() []string {
	return append(r.Names(), slices.Sorted(maps.Keys(r.aliases))...)
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

// Default is what a VM gets that says "auto", by the node's configuration: the name, for Choose. Where the configured one is not
// known it is kvm, and the warning says so, for the log and the node's report. (A VM's own specification that names an unknown one is
// refused instead.) An empty name and "auto" are left to automatic choice.
func (r *Registry) Default(configured string) (name, warning string) {
	if configured == "" || configured == NameAuto {
		return NameAuto, ""
	}
	if name, known := r.Canonical(configured); known {
		return name, ""
	}
	fallback := NameKVM
	if _, known := r.byName[NameKVM]; !known {
		fallback = NameAuto
	}
	unknown := &UnknownError{Requested: configured, Known: r.Names()}
	return fallback, fmt.Sprintf("the configured default is an %v; %s is used instead", unknown, fallback)
}

// Choose picks a hypervisor. "auto" and "" take the first that works and under which the VMM runs guests, which runs says (the
// error is why not; nil stands for a VMM that runs under all), or where there is none, the first of those that are degraded; a name
// takes that one, also when it is degraded.
// The reason is a plain sentence for the user, without remedies, which an error has. The error is *UnknownError, *UnusableError, or ctx's.
func (r *Registry) Choose(ctx context.Context, requested string, runs func(Hypervisor) error) (Hypervisor, string, error) {
	if requested == "" || requested == NameAuto {
		return r.auto(ctx, runs)
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
		return h, fmt.Sprintf("%s was asked for and is used although it is degraded: %s", requested, s.Reason), nil
	}
	return nil, "", &UnusableError{Name: requested, Status: s}
}

func (r *Registry) auto(ctx context.Context, runs func(Hypervisor) error) (Hypervisor, string, error) {
	var passed passedOver
	var slow Hypervisor // the first that is degraded
	for _, h := range r.ordered {
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
