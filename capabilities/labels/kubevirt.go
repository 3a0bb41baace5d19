package labels

import (
	"cmp"
	"strconv"

	"github.com/vmlet/vmlet/contract"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
)

// yes is the value of a label that says by being there.
const yes = "true"

// acceleratorFacts is where the document has what a VMM's guests can have.
const acceleratorFacts = "vmms.{vmm}.accelerators.{hypervisor}."

// kubevirt are the families of KubeVirt's node labeller, by its keys
// (staging/src/kubevirt.io/api/core/v1/types.go) and with its values.
func kubevirt() []family {
	return append(cpuFamilies(), []family{
		set(contract.LabelMachineType, []string{"vmms.{vmm}.machine_types"}, machineTypes),
		set(contract.LabelHyperV, hypervisorFacts("hyperv", "hyperv_features", "extensions", "msrs"), hyperv),
		whole(contract.LabelCPUTimer, hypervisorFacts("tsc"), tsc),
		whole(contract.LabelRealtime, []string{"host.realtime"}, realtime),
		whole(contract.LabelKSMEnabled, []string{"host.ksm", "host.ksm_enabled"}, ksm),
		confidential(contract.LabelSEV, "sev", (*capabilitiesv1.ConfidentialComputing).GetSev),
		confidential(contract.LabelSEVES, "sev-es", (*capabilitiesv1.ConfidentialComputing).GetSevEs),
		confidential(contract.LabelSEVSNP, "sev-snp", (*capabilitiesv1.ConfidentialComputing).GetSevSnp),
		confidential(contract.LabelTDX, "tdx", (*capabilitiesv1.ConfidentialComputing).GetTdx),
		confidential(contract.LabelS390PV, "s390-pv", (*capabilitiesv1.ConfidentialComputing).GetS390Pv),
	}...)
}

func cpuFamilies() []family {
	models := []string{acceleratorFacts + "cpu_models"}
	host := []string{acceleratorFacts + "host_cpu_model"}
	return []family{
		set(contract.LabelCPUFeature, []string{acceleratorFacts + "cpu_features"}, cpuFeatures),
		set(contract.LabelCPUModel, models, func(v *view, add adder) { cpuModels(v, add, (*capabilitiesv1.CpuModel).GetUsable) }),
		set(contract.LabelCPUModelMigration, models, func(v *view, add adder) {
			cpuModels(v, add, func(*capabilitiesv1.CpuModel) bool { return true })
		}),
		whole(contract.LabelHostModelCPU, host, hostModel),
		set(contract.LabelHostModelRequiredFeatures, host, requiredFeatures),
		whole(contract.LabelCPUVendor, append(host, "host.cpu.vendor"), cpuVendor),
		whole(contract.LabelObsoleteHostModel, host, obsoleteHostModel),
	}
}

// hypervisorFacts are parts of the chosen hypervisor.
func hypervisorFacts(parts ...string) []string {
	var facts []string
	for _, p := range parts {
		facts = append(facts, "hypervisors.{hypervisor}."+p)
	}
	return facts
}

func cpuFeatures(v *view, add adder) {
	if !v.traits.cpu {
		return
	}
	for _, f := range v.accelerator.GetCpuFeatures() {
		add(f, yes)
	}
}

func cpuModels(v *view, add adder, wanted func(*capabilitiesv1.CpuModel) bool) {
	if !v.traits.cpu {
		return
	}
	for _, m := range v.accelerator.GetCpuModels() {
		if wanted(m) && !v.obsolete(m.GetName()) {
			add(m.GetName(), yes)
		}
	}
}

func hostModel(v *view, add adder) {
	if m := v.hostModel(); m != nil {
		add(m.GetName(), yes)
	}
}

func requiredFeatures(v *view, add adder) {
	for _, f := range v.hostModel().GetRequiredFeatures() {
		add(f, yes)
	}
}

func obsoleteHostModel(v *view, add adder) {
	if m := v.hostModel(); m != nil && v.obsolete(m.GetName()) {
		add("", yes)
	}
}

// cpuVendor is the host model's; a model may be nobody's in particular, and
// then the guest sees the machine's.
func cpuVendor(v *view, add adder) {
	if !v.traits.cpu || v.accelerator == nil {
		return
	}
	vendor := cmp.Or(v.hostModel().GetVendor(), v.traits.vendor)
	if vendor == "" && v.hardware() {
		vendor = v.doc.GetHost().GetCpu().GetVendor()
	}
	if vendor != "" {
		add(vendor, yes)
	}
}

// noMachine is QEMU's machine type without a machine; libvirt, and so KubeVirt,
// leaves it out.
const noMachine = "none"

// machineTypes have their aliases beside them: a VM may ask for either.
func machineTypes(v *view, add adder) {
	for _, m := range v.vmm.GetMachineTypes() {
		if m.GetName() == noMachine {
			continue
		}
		add(m.GetName(), yes)
		if m.GetAlias() != "" {
			add(m.GetAlias(), yes)
		}
	}
}

func hyperv(v *view, add adder) {
	if !v.traits.x86 {
		return
	}
	for _, f := range v.hypervisor.GetHypervFeatures() {
		add(f, yes)
	}
}

func tsc(v *view, add adder) {
	t := v.hypervisor.GetTsc()
	if !v.traits.x86 || t.GetFrequencyHz() == 0 {
		return
	}
	add("tsc-frequency", strconv.FormatUint(t.GetFrequencyHz(), 10))
	add("tsc-scalable", strconv.FormatBool(t.GetScalable()))
}

func realtime(v *view, add adder) {
	if v.doc.GetHost().GetRealtime() {
		add("", yes)
	}
}

func ksm(v *view, add adder) {
	if host := v.doc.GetHost(); host != nil && host.KsmEnabled != nil {
		add("", strconv.FormatBool(host.GetKsmEnabled()))
	}
}

// confidential is there only where guests run on the machine's own CPUs.
func confidential(key, name string, get func(*capabilitiesv1.ConfidentialComputing) *capabilitiesv1.ConfidentialFeature) family {
	facts := []string{"confidential." + name, "confidential_computing." + name}
	return whole(key, facts, func(v *view, add adder) {
		if v.hardware() && get(v.doc.GetConfidentialComputing()).GetSupported() {
			add("", yes)
		}
	})
}
