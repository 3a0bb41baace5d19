package vmm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/spec"
)

// Registry holds the VMMs that vmlet knows, installed or not, the preferred one first. It
// doesn't change once made, so it may be shared.
type Registry struct {
	ordered []Planner
}

// NewRegistry makes a Registry. A name that is given twice, "auto", and one that is no
// single word are errors.
func NewRegistry(ordered ...Planner) (*Registry, error) {
	r := new(Registry)
	for _, p := range ordered {
		name := p.Name()
		if name == "" || name == spec.Auto || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return nil, fmt.Errorf("vmm: %q can't be a VMM's name: want a word of lower-case letters, digits and '-' that is not %q", name, spec.Auto)
		}
		if _, known := r.Get(name); known {
			return nil, fmt.Errorf("vmm: %s is registered twice", name)
		}
		r.ordered = append(r.ordered, p)
	}
	return r, nil
}

// Get returns the VMM of that name; false if there is none.
func (r *Registry) Get(name string) (Planner, bool) {
	i := slices.IndexFunc(r.ordered, func(p Planner) bool { return p.Name() == name })
	if i < 0 {
		return nil, false
	}
	return r.ordered[i], true
}

// All returns the VMMs, the preferred one first.
func (r *Registry) All() []Planner { return slices.Clone(r.ordered) }

// Names returns the names, the preferred one first.
func (r *Registry) Names() []string {
	names := make([]string, 0, len(r.ordered))
	for _, p := range r.ordered {
		names = append(names, p.Name())
	}
	return names
}
