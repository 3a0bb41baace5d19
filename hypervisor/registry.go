package hypervisor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/spec"
)

// Registry holds kinds of hypervisors by name, the preferred one first. It doesn't change once made, so it may be shared.
type Registry struct {
	ordered []Kind
	byName  map[string]Kind
	// aliases are other names, and whose they are.
	aliases map[string]string
	layers  spec.Layers
}

// New makes a Registry. The order is that in which automatic choice prefers them. A name that is given twice, "auto", an
// architecture's name, and one that is no single word are errors, and so are defaults under a key that is not the hypervisor's own.
func New(ordered ...Kind) (*Registry, error) {
	r := &Registry{byName: make(map[string]Kind, len(ordered)), aliases: make(map[string]string), layers: spec.BaseLayers()}
	for _, k := range ordered {
		name := k.Name()
		if !canBeName(name) {
			return nil, fmt.Errorf("hypervisor: %q can't be a hypervisor's name: want a word of lower-case letters, digits and '-' that is neither %q nor an architecture", name, NameAuto)
		}
		if r.byName[name] != nil {
			return nil, fmt.Errorf("hypervisor: %s is registered twice", name)
		}
		if err := r.addLayers(k); err != nil {
			return nil, err
		}
		r.byName[name] = k
		r.ordered = append(r.ordered, k)
	}
	if err := r.addAliases(); err != nil {
		return nil, err
	}
	return r, nil
}

// addAliases takes in the hypervisors' other names.
func (r *Registry) addAliases() error {
	for _, k := range r.ordered {
		a, ok := As[Aliased](k)
		if !ok {
			continue
		}
		for _, alias := range a.Aliases() {
			owner, taken := r.Canonical(alias)
			if taken || !canBeName(alias) {
				return fmt.Errorf("hypervisor: %q can't be another name of %s: it is no name, or that of %q", alias, k.Name(), owner)
			}
			r.aliases[alias] = k.Name()
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
func (r *Registry) Get(name string) (Kind, bool) {
	k, ok := r.byName[name]
	return k, ok
}

// All returns the hypervisors, the preferred one first.
func (r *Registry) All() []Kind {
	return slices.Clone(r.ordered)
}

// Names returns the names, the preferred one first.
func (r *Registry) Names() []string {
	names := make([]string, 0, len(r.ordered))
	for _, k := range r.ordered {
		names = append(names, k.Name())
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
