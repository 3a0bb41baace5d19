package qemu

import (
	"slices"
	"strings"
)

// accelerator asks what CPUs there are under the one that QEMU runs with.
func (a *asker) accelerator() Accelerator {
	out := Accelerator{Models: a.models()}
	host, _ := a.expand(modelHost, nil)
	maximum, known := a.expand(modelMax, nil)
	// "max" leaves out what could not be migrated, such as invtsc; a user may
	// ask for that by name.
	available, _ := a.expand(modelMax, map[string]any{"migratable": false})
	if available == nil {
		available = maximum
	}
	out.HostFeatures, out.MaxFeatures, out.Available, out.Known = host, maximum, available, known
	return out
}

func (a *asker) models() map[string]Model {
	var reply []struct {
		Name        string   `json:"name"`
		Unavailable []string `json:"unavailable-features"`
		Deprecated  bool     `json:"deprecated"`
	}
	a.ask("query-cpu-definitions", nil, &reply)
	models := make(map[string]Model, len(reply))
	for _, m := range reply {
		slices.Sort(m.Unavailable)
		models[m.Name] = Model{Unavailable: slices.Compact(m.Unavailable), Deprecated: m.Deprecated}
	}
	return models
}

// expand returns the features that a model has and all that it might, both
// sorted. Both are nil where QEMU doesn't tell (arm64's named models).
func (a *asker) expand(model string, props map[string]any) (have, known []string) {
	query := map[string]any{"name": model}
	if props != nil {
		query["props"] = props
	}
	var reply struct {
		Model struct {
			Props map[string]any `json:"props"`
		} `json:"model"`
	}
	if !a.ask("query-cpu-model-expansion", map[string]any{"type": "full", "model": query}, &reply) {
		return nil, nil
	}
	for name, value := range reply.Model.Props {
		on, isSwitch := value.(bool)
		if !isSwitch || !isFeature(name) {
			continue
		}
		known = append(known, name)
		if on {
			have = append(have, name)
		}
	}
	slices.Sort(have)
	slices.Sort(known)
	return have, known
}

// isFeature tells the features among a CPU's properties from the switches that
// say how QEMU is to make it, and from second spellings.
func isFeature(property string) bool {
	switch property {
	case "check", "enforce", "fill-mtrr-mask", "full-cpuid-auto-level", "host-cache-info", "host-phys-bits",
		"hotpluggable", "hotplugged", "kvm", "l3-cache", "legacy-cache", "migratable", "realized",
		"start-powered-off", "tcg-cpuid", "vmware-cpuid-freq":
		return false
	}
	return !strings.HasPrefix(property, "x-") && !strings.Contains(property, "_")
}
