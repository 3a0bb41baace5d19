package hypervisor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/spec"
)

// Layers are the defaults of every VM: the common ones, and those of each hypervisor. They are what spec.Default takes: from the
// most specific, a hypervisor on an architecture, to the base. What the map holds is not to be changed.
func (r *Registry) Layers() spec.Layers { return maps.Clone(r.layers) }

// addLayers takes in a hypervisor's defaults.
func (r *Registry) addLayers(k Kind) error {
	d, ok := As[Defaulter](k)
	if !ok {
		return nil
	}
	layers := d.Layers()
	for _, key := range slices.Sorted(maps.Keys(layers)) {
		if err := checkLayer(k.Name(), key, layers); err != nil {
			return err
		}
		r.layers[key] = layers[key]
	}
	return nil
}

// checkLayer refuses defaults that would be another's, or that would say which VM it is and what it runs on: that has been decided
// before defaults are filled in.
func checkLayer(name, key string, layers spec.Layers) error {
	own, arch, composite := strings.Cut(key, "/")
	switch {
	case own != name || composite && arch == "" || strings.Contains(arch, "/"):
		return fmt.Errorf("hypervisor: %s has defaults under %q: its keys are %q and %q with an architecture, such as %q",
			name, key, name, name+"/", name+"/amd64")
	case layers[key].GetName() != "" || layers[key].GetHypervisor() != "":
		return fmt.Errorf("hypervisor: %s has a default for name or hypervisor under %q: a default can't choose those", name, key)
	}
	return nil
}
