package labels

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/vmlet/vmlet/contract"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/proto/vmlet/capabilities/v1/fact"
	"github.com/vmlet/vmlet/sysfs/notation"
)

// own are vmlet's families: what a scheduler asks that KubeVirt's don't say.
func own() []family {
	numa := from(fact.HostNUMANodes)
	return []family{
		whole(contract.LabelHypervisor, chosenHypervisor, fromHypervisor(fact.HypervisorState)),
		whole(contract.LabelVMM, chosenVMM, fromVMM(fact.VMMState)),
		whole(contract.LabelLazyRestore, lazyRestore, fromVMM(fact.LazyRestore)),
		whole(contract.LabelMaxVCPUs, maxVCPUs, fromHypervisor(fact.Limits)),
		whole(contract.LabelNested, nested, fromHypervisor(fact.Nested), fromKVMsModules()),
		whole(contract.LabelIsolatedCPUs, isolatedCPUs, from(fact.HostCPU)),
		set(contract.LabelNUMANodes, countNodes(func(*capabilitiesv1.NumaNode) bool { return true }), numa),
		set(contract.LabelNUMACPULessNodes, countNodes(func(n *capabilitiesv1.NumaNode) bool { return n.GetCpus() == "" }), numa),
		set(contract.LabelNUMAMemorylessNodes, memoryless, numa),
		set(contract.LabelHugePages, hugePages, from(fact.HostHugePages)),
		whole(contract.LabelHypervisorState, hypervisors, fromNamedHypervisor(fact.HypervisorState)),
		whole(contract.LabelVMMVersion, vmms, fromNamedVMM(fact.VMMVersion)),
		set(contract.LabelFurtherCPUFeature, furtherFeatures, fromFurther(fact.CPUFeatures)),
		set(contract.LabelFurtherCPUModel, furtherModels, fromFurther(fact.CPUModels)),
		set(contract.LabelFurtherHyperV, furtherHyperV, fromNamedHypervisor(fact.HypervFeatures)),
	}
}

func chosenHypervisor(v *view, add adder) {
	if v.hypervisor != nil {
		add("", v.hypervisor.GetName())
	}
}

func chosenVMM(v *view, add adder) {
	if v.vmm.GetState() == works {
		add("", v.vmm.GetName())
	}
}

func lazyRestore(v *view, add adder) {
	if v.vmm.GetState() == works {
		add("", strconv.FormatBool(v.vmm.GetLazyRestore()))
	}
}

func maxVCPUs(v *view, add adder) {
	if n := v.hypervisor.GetLimits().GetMaxVcpus(); n > 0 {
		add("", strconv.FormatUint(uint64(n), 10))
	}
}

func nested(v *view, add adder) {
	if v.hypervisor != nil && v.hypervisor.Nested != nil {
		add("", strconv.FormatBool(v.hypervisor.GetNested()))
	}
}

// isolatedCPUs is how many: their list has commas, which a label can't have.
func isolatedCPUs(v *view, add adder) {
	list, err := notation.ParseIDList(v.doc.GetHost().GetCpu().GetIsolated())
	if err == nil && len(list) > 0 {
		add("", strconv.Itoa(len(list)))
	}
}

// memoryless is silent where no node has memory: none of them was asked.
func memoryless(v *view, add adder) {
	empty := func(n *capabilitiesv1.NumaNode) bool { return n.GetMemoryBytes() == 0 }
	if nodes := v.doc.GetHost().GetNumaNodes(); slices.ContainsFunc(nodes, func(n *capabilitiesv1.NumaNode) bool { return !empty(n) }) {
		countNodes(empty)(v, add)
	}
}

// countNodes makes a count of nodes a label. If of one node something could not
// be read the count may be wrong: hence its families are sets.
func countNodes(which func(*capabilitiesv1.NumaNode) bool) func(*view, adder) {
	return func(v *view, add adder) {
		n := 0
		for _, node := range v.doc.GetHost().GetNumaNodes() {
			if which(node) {
				n++
			}
		}
		if n > 0 {
			add("", strconv.Itoa(n))
		}
	}
}

// hugePages leaves out empty pools: a selector that asks whether the label is
// there asks whether there are any.
func hugePages(v *view, add adder) {
	for _, p := range v.doc.GetHost().GetHugePages() {
		if p.GetTotal() > 0 && p.GetPageSizeBytes() > 0 {
			add(pageSize(p.GetPageSizeBytes()), strconv.FormatUint(p.GetTotal(), 10))
		}
	}
}

// pageSize is written as Kubernetes writes it in the name of the resource
// hugepages-2Mi: without a fraction, in the largest unit that does.
func pageSize(bytes uint64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti"}
	unit := 0
	for bytes >= 1024 && bytes%1024 == 0 && unit < len(units)-1 {
		bytes /= 1024
		unit++
	}
	return fmt.Sprint(bytes, units[unit])
}

func hypervisors(v *view, add adder) {
	for _, h := range v.doc.GetHypervisors() {
		if h.GetState() != unasked && h.GetState() != unusable {
			add(h.GetName(), h.GetState().Word())
		}
	}
}

func vmms(v *view, add adder) {
	for _, m := range v.doc.GetVmms() {
		if m.GetState() == works {
			add(m.GetName(), m.GetVersion())
		}
	}
}
