package qemu

import (
	"slices"
	"strings"
)

// libvirt's names of CPU features are QEMU's, written with dashes, but for
// these. Both took Linux's underscore at first; QEMU changed to dashes in 2016
// and kept the old spelling as a second one, libvirt's are in its users' XML.
var libvirtSpelling = map[string]string{
	"cmp-legacy":   "cmp_legacy",
	"ds-cpl":       "ds_cpl",
	"fxsr-opt":     "fxsr_opt",
	"lahf-lm":      "lahf_lm",
	"nodeid-msr":   "nodeid_msr",
	"perfctr-core": "perfctr_core",
	"perfctr-nb":   "perfctr_nb",
	"tsc-adjust":   "tsc_adjust",
	// libvirt's name is a slip of the pen that stayed.
	"pclmulqdq": "pclmuldq",
}

// secondNames are properties of QEMU's CPUs that only repeat another, under
// the name that Intel, AMD or older versions of QEMU have for it.
var secondNames = map[string]string{
	"ffxsr":    "fxsr-opt",
	"i64":      "lm",
	"pclmuldq": "pclmulqdq",
	"sse3":     "pni",
	"sse4-1":   "sse4.1",
	"sse4-2":   "sse4.2",
	"xd":       "nx",
}

// notOfTheCPU are switches that QEMU has among a CPU's properties, and that say
// what the hypervisor offers or how the CPU is made. libvirt has other elements
// for them, if any.
var notOfTheCPU = []string{"cpuid-0xb", "full-width-write", "legacy-multi-node", "lmce", "pmu", "xen-vapic"}

// featureName is libvirt's name of a feature; empty: it is none.
func featureName(property string) string {
	name := canonical(property)
	if first, second := secondNames[name]; second {
		name = first
	}
	if strings.HasPrefix(name, "hv-") || strings.HasPrefix(name, "kvm-") || strings.HasPrefix(name, "kvmclock") || slices.Contains(notOfTheCPU, name) {
		return ""
	}
	if other, differs := libvirtSpelling[name]; differs {
		return other
	}
	return name
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

// vendorName is libvirt's name for a vendor as CPUID has it; empty: it has none.
func vendorName(cpuid string) string {
	switch cpuid {
	case "GenuineIntel":
		return "Intel"
	case "AuthenticAMD":
		return "AMD"
	case "HygonGenuine":
		return "Hygon"
	}
	return ""
}
