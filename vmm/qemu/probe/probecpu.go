package probe

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/vmlet/vmlet/vmm/qemu"
)

// accelerator asks what CPUs there are under the one that QEMU runs with, and
// what the best of them is made of.
func (a *asker) accelerator(name string) (qemu.Accelerator, definition) {
	out := qemu.Accelerator{Name: name, Models: a.models(), SEV: a.sev()}
	host, _ := a.expand(qemu.ModelHost, nil)
	maximum, known := a.expand(qemu.ModelMax, nil)
	// "max" leaves out what could not be migrated, such as invtsc; a user may
	// ask for that by name.
	available, _ := a.expand(qemu.ModelMax, map[string]any{"migratable": false})
	if available.features == nil {
		available = maximum
	}
	out.HostFeatures, out.MaxFeatures, out.Available, out.Known = host.features, maximum.features, available.features, known
	return out, available
}

// maxModels bounds how many CPU models are asked about. QEMU 10.0 has 154.
const maxModels = 2000

func (a *asker) models() map[string]qemu.Model {
	var reply []struct {
		Name        string   `json:"name"`
		Unavailable []string `json:"unavailable-features"`
		Deprecated  bool     `json:"deprecated"`
		AliasOf     string   `json:"alias-of"`
	}
	a.ask("query-cpu-definitions", nil, &reply)
	if len(reply) > maxModels {
		a.fail("it has %d CPU models, which can't be", len(reply))
		return nil
	}
	models := make(map[string]qemu.Model, len(reply))
	for _, m := range reply {
		slices.Sort(m.Unavailable)
		models[m.Name] = qemu.Model{Unavailable: slices.Compact(m.Unavailable), Deprecated: m.Deprecated, AliasOf: m.AliasOf}
	}
	return models
}

// atOnce is how many questions may be under way: enough that QEMU never waits
// for the next one.
const atOnce = 8

// definitions asks what the models are made of that have a name and are not a
// version of another (Haswell-v4). It is empty where QEMU doesn't tell (arm64).
func (a *asker) definitions(models map[string]qemu.Model, ownVendor bool) []definition {
	found := make([]definition, 0, len(models))
	for _, name := range slices.Sorted(maps.Keys(models)) {
		if models[name].AliasOf != "" {
			found = append(found, definition{model: name})
		}
	}
	errs := make([]error, len(found))
	next := make(chan int, len(found))
	for i := range found {
		next <- i
	}
	close(next)
	var group sync.WaitGroup
	for range atOnce {
		group.Go(func() {
			for i := range next {
				each := asker{ctx: a.ctx, client: a.client, err: a.err}
				made, _ := each.expand(found[i].model, nil)
				found[i].cpu, errs[i] = made.cpu, each.err
			}
		})
	}
	group.Wait()
	if a.err == nil {
		a.err = errors.Join(errs...)
	}
	for i := range found {
		if !ownVendor {
			found[i].vendor = ""
		}
	}
	return slices.DeleteFunc(found, func(d definition) bool { return d.features == nil })
}

// definition is what a CPU model is made of.
type definition struct {
	model string
	cpu
}

// cpu is what CPUID says of a processor.
type cpu struct {
	vendor                   string // as CPUID has it; empty: not known
	family, number, stepping int
	features                 []string // by QEMU's names, sorted
}

// expand returns what a model is made of, and all features that it might have,
// sorted. Both are empty where QEMU doesn't tell (arm64's named models).
func (a *asker) expand(model string, props map[string]any) (made definition, known []string) {
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
		return definition{}, nil
	}
	for name, value := range reply.Model.Props {
		on, isSwitch := value.(bool)
		if !isSwitch || !isFeature(name) {
			continue
		}
		known = append(known, name)
		if on {
			made.features = append(made.features, name)
		}
	}
	slices.Sort(made.features)
	slices.Sort(known)
	made.vendor, _ = reply.Model.Props["vendor"].(string)
	for name, into := range map[string]*int{"family": &made.family, "model": &made.number, "stepping": &made.stepping} {
		number, _ := reply.Model.Props[name].(float64)
		*into = int(number)
	}
	return made, known
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
