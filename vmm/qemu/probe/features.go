package probe

import (
	"slices"
	"strings"

	"github.com/vmlet/vmlet/vmm/qemu"
)

// libvirtSpelling is libvirt's name of a feature by QEMU's. They are the same,
// written with dashes, but for these. Both took Linux's underscore at first; QEMU
// changed to dashes in 2016 and kept the old spelling as a second one, libvirt's
// are in its users' XML.
func libvirtSpelling(name string) string {
	switch name {
	case "cmp-legacy", "ds-cpl", "fxsr-opt", "lahf-lm", "nodeid-msr", "perfctr-core", "perfctr-nb", "tsc-adjust":
		return strings.Replace(name, "-", "_", 1)
	case "pclmulqdq":
		return "pclmuldq" // a slip of the pen that stayed
	}
	return name
}

// firstName is the feature that a property of QEMU's CPUs only repeats, under the
// name that Intel, AMD or older versions of QEMU have for it; empty: it is itself.
func firstName(name string) string {
	switch name {
	case "ffxsr":
		return "fxsr-opt"
	case "i64":
		return "lm"
	case "pclmuldq":
		return "pclmulqdq"
	case "sse3":
		return "pni"
	case "sse4-1":
		return "sse4.1"
	case "sse4-2":
		return "sse4.2"
	case "xd":
		return "nx"
	}
	return ""
}

// notOfTheCPU are switches that QEMU has among a CPU's properties, and that say
// what the hypervisor offers or how the CPU is made. libvirt has other elements
// for them, if any.
func notOfTheCPU(name string) bool {
	switch name {
	case "cpuid-0xb", "full-width-write", "legacy-multi-node", "lmce", "pmu", "xen-vapic":
		return true
	}
	return strings.HasPrefix(name, "hv-") || strings.HasPrefix(name, "kvm-") || strings.HasPrefix(name, "kvmclock")
}

// featureName is libvirt's name of a feature; empty: it is none.
func featureName(property string) string {
	name := qemu.Canonical(property)
	if first := firstName(name); first != "" {
		name = first
	}
	if notOfTheCPU(name) {
		return ""
	}
	return libvirtSpelling(name)
}

// featureNames are libvirt's names, sorted, each once.
func featureNames(properties []string) []string {
	out := make([]string, 0, len(properties))
	for _, p := range properties {
		if name := featureName(p); name != "" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
