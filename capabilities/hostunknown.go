package capabilities

import (
	"cmp"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/sysfs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hostFacts says of which fact the files below a path tell. The longest path
// that fits counts.
func hostFacts(roots sysfs.Roots) map[string]string {
	return map[string]string{
		roots.SysPath("kernel", "mm", "ksm"):                         "host.ksm",
		roots.SysPath("kernel", "mm", "hugepages"):                   "host.hugePages",
		roots.SysPath("kernel", "mm", "transparent_hugepage"):        "host.transparentHugePages",
		roots.SysPath("devices", "system", "node"):                   "host.numaNodes",
		roots.SysPath("devices", "system", "cpu"):                    "host.cpu",
		roots.SysPath("devices", "system", "cpu", "vulnerabilities"): "host.vulnerabilities",
		roots.SysPath("devices", "system", "clocksource"):            "host.clocksource",
		roots.SysPath("kernel", "iommu_groups"):                      "host.iommuGroups",
		roots.SysPath("module"):                                      "host.nested",
		roots.SysPath("module", "vfio"):                              "host.vfio",
		roots.ProcPath("sys", "kernel", "sched_rt_runtime_us"):       "host.realtime",
		roots.ProcPath("sys", "kernel", "osrelease"):                 "host.kernelRelease",
		roots.ProcPath("meminfo"):                                    "host.memory",
		roots.ProcPath("cpuinfo"):                                    "host.cpu",
		roots.SysPath():                                              "host",
		roots.ProcPath():                                             "host",
	}
}

// hostUnknown says which facts of the machine are missing, one entry a fact.
func hostUnknown(h *sysfs.Host, roots sysfs.Roots) []*capabilitiesv1.UnknownFact {
	facts := hostFacts(roots)
	reasons := map[string][]string{}
	for _, n := range h.Notes {
		if fact := factOf(n.Path, facts); fact != "" {
			reasons[fact] = append(reasons[fact], n.Path+": "+n.Message)
		}
	}
	missing := func(fact string, isMissing bool, reason string) {
		if isMissing && len(reasons[fact]) == 0 && len(reasons["host"]) == 0 {
			reasons[fact] = []string{reason}
		}
	}
	missing("host.ksm", h.Memory.KSM == nil && !withoutKSM(h, roots), roots.SysPath("kernel", "mm", "ksm", "run")+" is not there")
	missing("host.realtime", h.Kernel.RealtimeRuntime == nil, roots.ProcPath("sys", "kernel", "sched_rt_runtime_us")+" is not there")
	// Where there is no KVM there is nothing that could be nested.
	missing("host.nested", h.Virtualization.Nested == nil && there(roots.DevPath("kvm")), "no module that is loaded has the parameter nested")
	var out []*capabilitiesv1.UnknownFact
	for fact, why := range reasons {
		out = append(out, &capabilitiesv1.UnknownFact{Fact: fact, Reason: someOf(why)})
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
func factOf(path string, facts map[string]string) string {
	for at := path; ; at = filepath.Dir(at) {
		fact, ok := facts[at]
		switch {
		case ok && fact == "host" && at != path:
			return ""
		case ok:
			return fact
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
