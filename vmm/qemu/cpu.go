package qemu

import (
	"slices"
	"strconv"
	"strings"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// Models that are not the same everywhere: "host" is the node's CPU and "max"
// all that this QEMU can do on it.
const (
	ModelHost = "host"
	ModelMax  = "max"
	// ModelBase has no features at all: what others are made from.
	ModelBase = "base"
)

// OpenModel reports whether what a CPU model gives the guest depends on the host: host and max.
func OpenModel(model string) bool { return model == ModelHost || model == ModelMax }

func (b *builder) cpuArgs() {
	b.checkModel()
	cpu := b.spec.GetCpu()
	features := make([]string, 0, 2*len(cpu.GetFeatures()))
	for _, name := range b.withoutFeatures() {
		features = append(features, name, "off")
	}
	for _, f := range cpu.GetFeatures() {
		if f.GetPolicy() == spec.PolicyOptional && !b.canHave(f.GetName()) {
			continue
		}
		features = append(features, f.GetName(), onOff(!spec.TakesAway(f)))
	}
	features = append(features, b.enlightenments()...)
	b.arg("-cpu", keyValues(cpu.GetModel(), features...))
	b.topology()
}

// canHave tells whether the guest gets a feature that it is to have if possible. One that
// is restored has what it had.
func (b *builder) canHave(feature string) bool {
	if image := b.req.Image; image != nil {
		return slices.Contains(image.Manifest.CPU.Features, Canonical(feature))
	}
	return contains(b.accel.Available, Canonical(feature))
}

// topology has room for the vCPUs that may be plugged in, as sockets.
func (b *builder) topology() {
	number := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	cpu := b.spec.GetCpu()
	sockets, socket := cpu.GetSockets(), cpu.GetCores()*cpu.GetThreads()
	smp := []string{"cpus", number(sockets * socket)}
	if most := uint32(spec.VCPULimit(cpu)); most > sockets*socket {
		sockets = most / socket
		smp = append(smp, "maxcpus", number(most))
	}
	smp = append(smp, "sockets", number(sockets), "cores", number(cpu.GetCores()), "threads", number(cpu.GetThreads()))
	b.arg("-smp", keyValues("", smp...))
}

func (b *builder) checkModel() {
	model := b.spec.GetCpu().GetModel()
	if _, known := b.accel.Models[model]; !known {
		b.faults.Add("cpu.model", "%q is not a CPU model of QEMU %s", model, b.req.Info.Version)
	}
	if len(b.accel.Known) == 0 {
		return // this architecture doesn't tell
	}
	for i, f := range b.spec.GetCpu().GetFeatures() {
		field := "cpu.features[" + strconv.Itoa(i) + "].name"
		name := Canonical(f.GetName())
		available := contains(b.accel.Available, name)
		switch policy := f.GetPolicy(); {
		case !contains(b.accel.Known, name):
			b.faults.Add(field, "%q is not a CPU feature of QEMU %s", f.GetName(), b.req.Info.Version)
		case (policy == spec.PolicyRequire || policy == "") && !available:
			b.faults.Add(field, "%s is required and can't be had on this node with %s", f.GetName(), b.req.Hypervisor)
		case policy == spec.PolicyForbid && available:
			b.faults.Add(field, "%s is forbidden and this node has it with %s: want policy disable, or a node without it", f.GetName(), b.req.Hypervisor)
		}
	}
}

// withoutFeatures are those that the model is to go without, beside what the
// specification says: what this node's hypervisor chokes on, and, on a restore,
// what the guest did not have when it was saved.
func (b *builder) withoutFeatures() []string {
	var out []string
	if !OpenModel(b.spec.GetCpu().GetModel()) {
		// QEMU would leave out what it can't do by itself, with a warning for
		// each; this way the command line says what the guest goes without.
		for _, name := range b.unavailable() {
			// Names from an image become options only if QEMU knows them.
			if contains(b.accel.Known, Canonical(name)) {
				out = append(out, name)
			}
		}
		return b.unlessSaid(out)
	}
	for _, quirk := range b.req.CPUQuirks {
		if name, off := strings.CutPrefix(quirk, "-"); off {
			out = append(out, name)
		}
	}
	if image := b.req.Image; image != nil && len(image.Manifest.CPU.Features) > 0 {
		for _, name := range b.modelFeatures() {
			if !slices.Contains(image.Manifest.CPU.Features, name) {
				out = append(out, name)
			}
		}
	}
	return b.unlessSaid(out)
}

// unlessSaid sorts the names and leaves out those that the specification speaks of.
func (b *builder) unlessSaid(names []string) []string {
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		return slices.ContainsFunc(b.spec.GetCpu().GetFeatures(), func(f *specv1.CPUFeature) bool {
			return Canonical(f.GetName()) == Canonical(name)
		})
	})
}

// savedWithout are the features of a named model that the guest lacked when the
// image was saved that it is restored from.
func (b *builder) savedWithout() []string {
	if b.req.Image == nil {
		return nil
	}
	return strings.FieldsFunc(b.req.Image.Manifest.VMM.Extra[unavailableKey], func(r rune) bool { return r == ',' })
}

// modelFeatures are those of an open model as this QEMU expands it.
func (b *builder) modelFeatures() []string {
	switch b.spec.GetCpu().GetModel() {
	case ModelHost:
		return b.accel.HostFeatures
	case ModelMax:
		return b.accel.MaxFeatures
	}
	return nil
}

// guestFeatures are the features that the guest sees, as far as they do not
// follow from the model's name, sorted.
func (b *builder) guestFeatures() []string {
	have := make(map[string]bool)
	for _, name := range b.modelFeatures() {
		have[name] = true
	}
	for _, name := range b.withoutFeatures() {
		delete(have, name)
	}
	for _, f := range b.spec.GetCpu().GetFeatures() {
		switch name := Canonical(f.GetName()); {
		case spec.TakesAway(f):
			delete(have, name)
		case f.GetPolicy() == spec.PolicyOptional && !b.canHave(name):
		case f.GetPolicy() == spec.PolicyForce && len(b.accel.Known) > 0 && !contains(b.accel.Available, name):
			// QEMU is asked for it, and leaves out what the hypervisor can't do.
		default:
			have[name] = true
		}
	}
	out := make([]string, 0, len(have))
	for name := range have {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func contains(sorted []string, s string) bool {
	_, found := slices.BinarySearch(sorted, s)
	return found
}

// Canonical is the spelling that QEMU's answers are kept in; it takes both, and
// Linux and libvirt write "lahf_lm".
func Canonical(feature string) string { return strings.ReplaceAll(feature, "_", "-") }
