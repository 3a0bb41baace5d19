package capabilities

import (
	"cmp"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"maps"
	"slices"
)

// withAliases are the CPU models of the configuration's list, and all other names
// that the VMMs have for the same models: "Conroe-v1" with "Conroe". Sorted, each
// once.
func withAliases(listed []string, vmms []*capabilitiesv1.VmmCapabilities) []string {
	all := make(map[string]bool, len(listed))
	for _, name := range listed {
		all[name] = true
	}
	for _, v := range vmms {
		for _, a := range v.GetAccelerators() {
			for _, name := range aliases(listed, a.GetCpuModels()) {
				all[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// aliases are all names of each model that is listed under one of them.
func aliases(listed []string, models []*capabilitiesv1.CpuModel) []string {
	// A model is known by the name that the others stand for.
	model := func(m *capabilitiesv1.CpuModel) string { return cmp.Or(m.GetAliasOf(), m.GetName()) }
	meant := make(map[string]bool)
	for _, m := range models {
		if slices.Contains(listed, m.GetName()) || slices.Contains(listed, m.GetAliasOf()) {
			meant[model(m)] = true
		}
	}
	var names []string
	for _, m := range models {
		if meant[model(m)] {
			names = append(names, m.GetName(), model(m))
		}
	}
	return names
}
