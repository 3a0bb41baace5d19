package capabilities

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/proto/vmlet/capabilities/v1/fact"
	"github.com/vmlet/vmlet/sysfs"
)

// hostFacts maps paths to the fact that the files below them tell. The longest path
// that fits counts.
func hostFacts(roots sysfs.Roots) map[string]fact.Path {
	return map[string]fact.Path{
		roots.SysPath("kernel", "mm", "ksm"):                         fact.HostKSM,
		roots.SysPath("kernel", "mm", "hugepages"):                   fact.HostHugePages,
		roots.SysPath("kernel", "mm", "transparent_hugepage"):        fact.HostTransparentHugePages,
		roots.SysPath("devices", "system", "node"):                   fact.HostNUMANodes,
		roots.SysPath("devices", "system", "cpu"):                    fact.HostCPU,
		roots.SysPath("devices", "system", "cpu", "vulnerabilities"): fact.HostVulnerabilities,
		roots.SysPath("devices", "system", "clocksource"):            fact.HostClocksource,
		roots.SysPath("kernel", "iommu_groups"):                      fact.HostIOMMUGroups,
		roots.SysPath("module"):                                      fact.HostNested,
		roots.SysPath("module", "vfio"):                              fact.HostVFIO,
		roots.ProcPath("sys", "kernel", "sched_rt_runtime_us"):       fact.HostRealtime,
		roots.ProcPath("sys", "kernel", "osrelease"):                 fact.HostKernelRelease,
		roots.ProcPath("meminfo"):                                    fact.HostMemory,
		roots.ProcPath("cpuinfo"):                                    fact.HostCPU,
		roots.SysPath():                                              fact.Host,
		roots.ProcPath():                                             fact.Host,
	}
}

// hostUnknown says which facts of the machine are missing, one entry a fact.
func hostUnknown(h *sysfs.Host, roots sysfs.Roots) []*capabilitiesv1.UnknownFact {
	facts := hostFacts(roots)
	reasons := map[fact.Path][]string{}
	for _, n := range h.Notes {
		if of := factOf(n.Path, facts); of != "" {
			reasons[of] = append(reasons[of], n.Path+": "+n.Message)
		}
	}
	missing := func(part fact.Path, isMissing bool, reason string) {
		if isMissing && len(reasons[part]) == 0 && len(reasons[fact.Host]) == 0 {
			reasons[part] = []string{reason}
		}
	}
	missing(fact.HostKSM, h.Memory.KSM == nil && !withoutKSM(h, roots), roots.SysPath("kernel", "mm", "ksm", "run")+" is not there")
	missing(fact.HostRealtime, h.Kernel.RealtimeRuntime == nil, roots.ProcPath("sys", "kernel", "sched_rt_runtime_us")+" is not there")
	// Where there is no KVM there is nothing that could be nested.
	missing(fact.HostNested, h.Virtualization.Nested == nil && there(roots.DevPath("kvm")), "no module that is loaded has the parameter nested")
	var out []*capabilitiesv1.UnknownFact
	for part, why := range reasons {
		out = append(out, &capabilitiesv1.UnknownFact{Fact: string(part), Reason: someOf(why)})
	}
	return sortFacts(out)
}

// withoutKSM: the kernel is built without it, and so it merges nothing.
func withoutKSM(h *sysfs.Host, roots sysfs.Roots) bool {
	noted := slices.ContainsFunc(h.Notes, func(n sysfs.Note) bool { return strings.HasPrefix(n.Path, roots.SysPath("kernel", "mm", "ksm")) })
	return h.Memory.KSM == nil && !noted && there(roots.SysPath("kernel", "mm")) && !there(roots.SysPath("kernel", "mm", "ksm"))
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// factOf is the fact that a file tells of; empty: none of the document's. What
// the files of one device say (PCI, USB) is not in it.
func factOf(path string, facts map[string]fact.Path) fact.Path {
	for at := path; ; at = filepath.Dir(at) {
		part, ok := facts[at]
		switch {
		case ok && part == fact.Host && at != path:
			return ""
		case ok:
			return part
		case at == filepath.Dir(at):
			return ""
		}
	}
}

// maxReasons bounds what is listed for one fact.
const maxReasons = 3

func someOf(reasons []string) string {
	slices.Sort(reasons)
	reasons = slices.Compact(reasons)
	if len(reasons) > maxReasons {
		reasons = append(reasons[:maxReasons:maxReasons], "and more")
	}
	return strings.Join(reasons, "; ")
}

// sortFacts puts facts in the document's order, each once.
func sortFacts(facts []*capabilitiesv1.UnknownFact) []*capabilitiesv1.UnknownFact {
	slices.SortFunc(facts, func(a, b *capabilitiesv1.UnknownFact) int {
		return cmp.Or(strings.Compare(a.GetFact(), b.GetFact()), strings.Compare(a.GetReason(), b.GetReason()))
	})
	return slices.CompactFunc(facts, func(a, b *capabilitiesv1.UnknownFact) bool {
		return a.GetFact() == b.GetFact() && a.GetReason() == b.GetReason()
	})
}
