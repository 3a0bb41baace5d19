package qemu

import (
	"cmp"
	"slices"
	"strings"
)

// describe fills in what follows from the models' definitions: whose each is,
// and which is nearest to the best CPU that a guest can have.
func (a *Accelerator) describe(host definition, models []definition) {
	for _, d := range models {
		if m, known := a.Models[d.model]; known {
			m.Vendor = d.vendor
			a.Models[d.model] = m
		}
	}
	a.HostModel = nearest(host.cpu, models)
}

// nearest says a CPU as a named model and what differs. nil: no model fits, or
// nothing is known of them.
//
// A model of another vendor never fits. One that stands for the very processor
// is taken before others, then one of the same generation; among those the one
// with the fewest differences, and of two of the same number that with fewer
// features to be taken away.
func nearest(host cpu, models []definition) *HostModel {
	var best *candidate
	for _, d := range models {
		if !d.named || !fits(host, d) {
			continue
		}
		if c := compare(host, d); best == nil || c.better(best) {
			best = c
		}
	}
	if best == nil {
		return nil
	}
	return &HostModel{Name: best.name, Vendor: host.vendor, Required: best.required, Disabled: best.disabled}
}

// candidate is a model as compared with a CPU.
type candidate struct {
	name               string
	sameCPU            bool // family and model are the CPU's
	stepping           int  // how far off it is, where they are
	required, disabled []string
}

func fits(host cpu, d definition) bool {
	return generic(d.model) || host.vendor == "" || d.vendor == "" || host.vendor == d.vendor
}

func compare(host cpu, d definition) *candidate {
	has, wants := meaningful(host.features), meaningful(d.features)
	return &candidate{
		name:     d.model,
		sameCPU:  host.family == d.family && generation(host) == generation(d.cpu),
		stepping: max(host.stepping-d.stepping, d.stepping-host.stepping),
		required: without(has, wants),
		disabled: without(wants, has),
	}
}

func (c *candidate) better(than *candidate) bool {
	if c.sameCPU != than.sameCPU {
		return c.sameCPU
	}
	return cmp.Or(
		cmp.Compare(len(c.required)+len(c.disabled), len(than.required)+len(than.disabled)),
		cmp.Compare(len(c.disabled), len(than.disabled)),
		-cmp.Compare(c.name, than.name),
	) < 0
}

// meaningful leaves out what is no feature of a CPU, and what vmx can do where
// there is no vmx.
func meaningful(features []string) []string {
	vmx := contains(features, "vmx")
	return slices.DeleteFunc(slices.Clone(features), func(name string) bool {
		return featureName(name) == "" || !vmx && strings.HasPrefix(name, "vmx-")
	})
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

func modelVendor(name string, m Model) string {
	if i := strings.LastIndex(name, "-v"); i > 0 && m.AliasOf == "" {
		name = name[:i]
	}
	if generic(name) {
		return ""
	}
	return vendorName(m.Vendor)
}

func generation(c cpu) int { return c.number }
