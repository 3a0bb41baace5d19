package labels

import (
	"cmp"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"strconv"
)

// yes is the value of a label that says by being there.
const yes = "true"

// acceleratorFacts is where the document has what a VMM's guests can have.
const acceleratorFacts = "vmms.{vmm}.accelerators.{hypervisor}."

// kubevirt are the families of KubeVirt's node labeller, by its keys
// (staging/src/kubevirt.io/api/core/v1/types.go) and with its values.
func kubevirt() []family {
	return append(cpuFamilies(), []family{
		set("machine-type.node.kubevirt.io/", []string{"vmms.{vmm}.machine_types"}, machineTypes),
		set("hyperv.node.kubevirt.io/", hypervisorFacts("hyperv", "hyperv_features", "extensions", "msrs"), hyperv),
		whole("cpu-timer.node.kubevirt.io/", hypervisorFacts("tsc"), tsc),
		whole("kubevirt.io/realtime", []string{"host.realtime"}, realtime),
		whole("kubevirt.io/ksm-enabled", []string{"host.ksm", "host.ksm_enabled"}, ksm),
		confidential("sev", (*capabilitiesv1.ConfidentialComputing).GetSev),
		confidential("sev-es", (*capabilitiesv1.ConfidentialComputing).GetSevEs),
		confidential("sev-snp", (*capabilitiesv1.ConfidentialComputing).GetSevSnp),
		confidential("tdx", (*capabilitiesv1.ConfidentialComputing).GetTdx),
		confidential("s390-pv", (*capabilitiesv1.ConfidentialComputing).GetS390Pv),
	}...)
}

func cpuFamilies() []family {
	models := []string{acceleratorFacts + "cpu_models"}
	host := []string{acceleratorFacts + "host_cpu_model"}
	return []family{
		set("cpu-feature.node.kubevirt.io/", []string{acceleratorFacts + "cpu_features"}, cpuFeatures),
		set("cpu-model.node.kubevirt.io/", models, func(v *view, add adder) { cpuModels(v, add, (*capabilitiesv1.CpuModel).GetUsable) }),
		set("cpu-model-migration.node.kubevirt.io/", models, func(v *view, add adder) {
			cpuModels(v, add, func(*capabilitiesv1.CpuModel) bool { return true })
		}),
		whole("host-model-cpu.node.kubevirt.io/", host, hostModel),
		set("host-model-required-features.node.kubevirt.io/", host, requiredFeatures),
		whole("cpu-vendor.node.kubevirt.io/", append(host, "host.cpu.vendor"), cpuVendor),
		whole("node-labeller.kubevirt.io/obsolete-host-model", host, obsoleteHostModel),
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
func confidential(name string, get func(*capabilitiesv1.ConfidentialComputing) *capabilitiesv1.ConfidentialFeature) family {
	facts := []string{"confidential." + name, "confidential_computing." + name}
	return whole("kubevirt.io/"+name, facts, func(v *view, add adder) {
		if v.hardware() && get(v.doc.GetConfidentialComputing()).GetSupported() {
			add("", yes)
		}
	})
}
