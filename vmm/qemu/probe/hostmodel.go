package probe

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu"
)

// describe fills in what follows from the models' definitions: whose each is,
// and which is nearest to the best CPU that a guest can have.
func describe(a *qemu.Accelerator, host definition, models []definition) {
	vendors := make(map[string]string, len(models))
	for _, d := range models {
		vendors[d.model] = d.vendor
	}
	for name, m := range a.Models {
		m.Vendor = vendors[baseName(name)]
		a.Models[name] = m
	}
	a.HostModel = nearest(host.cpu, models)
}

// nearest says a CPU as a named model and what differs. nil: no model fits, or
// nothing is known of them.
//
// A model of another vendor never fits, nor one that is another with a setting
// of the kernel's. Models of the very processor, by its
// signature, are taken before others; of either kind the one with the fewest
// differences, and of two of the same number that with fewer features to be
// taken away. The models that stand for no processor (qemu64) have no signature
// that counts. This is what libvirt goes by as well.
func nearest(host cpu, models []definition) *qemu.HostModel {
	var best *candidate
	for _, d := range models {
		if setting(d.model) || !fits(host, d) {
			continue
		}
		if c := compare(host, d); best == nil || c.better(best) {
			best = c
		}
	}
	if best == nil {
		return nil
	}
	return &qemu.HostModel{Name: best.name, Vendor: host.vendor, Required: best.required, Disabled: best.disabled}
}

// candidate is a model as compared with a CPU.
type candidate struct {
	name               string
	same               bool // it stands for the very processor
	required, disabled []string
}

func fits(host cpu, d definition) bool {
	return generic(d.model) || host.vendor == "" || d.vendor == "" || host.vendor == d.vendor
}

// setting tells the models that differ from another by a setting of the kernel:
// from Skylake on, TSX is there or not as tsx= has it, and a host is not to
// become another by that. Haswells and Broadwells without TSX were sold.
func setting(model string) bool {
	return strings.Contains(model, "-noTSX") && !strings.HasPrefix(model, "Haswell") && !strings.HasPrefix(model, "Broadwell")
}

func compare(host cpu, d definition) *candidate {
	has, wants := meaningful(host.features), d.own()
	return &candidate{
		name:     d.model,
		same:     !generic(d.model) && processorOf(host) == d.processor(),
		required: beyond(has, wants),
		disabled: beyond(wants, has),
	}
}

// beyond are the features that others, which are sorted, does not have.
func beyond(features, others []string) []string {
	return slices.DeleteFunc(slices.Clone(features), func(name string) bool {
		_, there := slices.BinarySearch(others, name)
		return there
	})
}

// counted is how many of the features count: not vme, which says more about the
// accelerator than about the processor.
func counted(features []string) int {
	if slices.Contains(features, "vme") {
		return len(features) - 1
	}
	return len(features)
}

func (c *candidate) better(than *candidate) bool {
	if c.same != than.same {
		return c.same
	}
	return cmp.Or(
		cmp.Compare(counted(c.required)+counted(c.disabled), counted(than.required)+counted(than.disabled)),
		cmp.Compare(counted(c.disabled), counted(than.disabled)),
		cmp.Compare(len(c.required)+len(c.disabled), len(than.required)+len(than.disabled)),
		cmp.Compare(c.name, than.name),
	) < 0
}

// meaningful leaves out what is no feature of a CPU, what only repeats another,
// and what vmx can do where there is no vmx.
func meaningful(features []string) []string {
	vmx := slices.Contains(features, "vmx")
	return slices.DeleteFunc(slices.Clone(features), func(name string) bool {
		return firstName(name) != "" || featureName(name) == "" || !vmx && strings.HasPrefix(name, "vmx-")
	})
}

// own are the features that belong to a model by itself, whatever QEMU's
// accelerators make of it: both let guests see that there is a hypervisor, KVM
// takes monitor from each model, and TCG vme, which every processor since the
// 486 has had.
func (d definition) own() []string {
	out := slices.DeleteFunc(meaningful(d.features), func(name string) bool {
		return name == "hypervisor" || name == "monitor" || name == "vme"
	})
	if !generic(d.model) {
		out = append(out, "vme")
		slices.Sort(out)
	}
	return out
}

// generic tells the models that stand for no vendor's processor, though CPUID
// must say one.
func generic(model string) bool {
	switch model {
	case "486", "pentium", "pentium2", "pentium3", "qemu32", "qemu64", "kvm32", "kvm64":
		return true
	}
	return false
}

// modelVendor is libvirt's word for whose a model is.
func modelVendor(name string, m qemu.Model) string {
	if generic(baseName(name)) {
		return ""
	}
	return vmm.VendorName(m.Vendor)
}

// baseName is a model's name without its version: "EPYC" for "EPYC-v2".
func baseName(model string) string {
	i := strings.LastIndex(model, "-v")
	if i < 1 || strings.Trim(model[i+2:], "0123456789") != "" {
		return model
	}
	return model[:i]
}
