package labels

import (
	"cmp"
	"strconv"

	"github.com/vmlet/vmlet/contract"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/proto/vmlet/capabilities/v1/fact"
)

// yes is the value of a label that says by being there.
const yes = "true"

// kubevirt are the families of KubeVirt's node labeller, by its keys and with its
// values.
func kubevirt() []family {
	return append(cpuFamilies(), []family{
		set(contract.LabelMachineType, machineTypes, fromVMM(fact.MachineTypes)),
		set(contract.LabelHyperV, hyperv, fromHypervisor(fact.HypervFeatures), fromHypervisor(fact.Extensions), fromHypervisor(fact.MSRs)),
		whole(contract.LabelCPUTimer, tsc, fromHypervisor(fact.TSC)),
		whole(contract.LabelRealtime, realtime, from(fact.HostRealtime)),
		whole(contract.LabelKSMEnabled, ksm, from(fact.HostKSM)),
		confidential(contract.LabelSEV, (*capabilitiesv1.ConfidentialComputing).GetSev, fact.ConfidentialSEV),
		confidential(contract.LabelSEVES, (*capabilitiesv1.ConfidentialComputing).GetSevEs, fact.ConfidentialSEVES),
		confidential(contract.LabelSEVSNP, (*capabilitiesv1.ConfidentialComputing).GetSevSnp, fact.ConfidentialSEVSNP),
		confidential(contract.LabelTDX, (*capabilitiesv1.ConfidentialComputing).GetTdx, fact.ConfidentialTDX),
		confidential(contract.LabelS390PV, (*capabilitiesv1.ConfidentialComputing).GetS390Pv, fact.ConfidentialS390PV),
	}...)
}

func cpuFamilies() []family {
	models, host := fromAccelerator(fact.CPUModels), fromAccelerator(fact.HostCPUModel)
	return []family{
		set(contract.LabelCPUFeature, cpuFeatures, fromAccelerator(fact.CPUFeatures)),
		set(contract.LabelCPUModel, func(v *view, add adder) { cpuModels(v, add, (*capabilitiesv1.CpuModel).GetUsable) }, models),
		set(contract.LabelCPUModelMigration, func(v *view, add adder) {
			cpuModels(v, add, func(*capabilitiesv1.CpuModel) bool { return true })
		}, models),
		whole(contract.LabelHostModelCPU, hostModel, host),
		set(contract.LabelHostModelRequiredFeatures, requiredFeatures, host),
		whole(contract.LabelCPUVendor, cpuVendor, host, from(fact.HostCPU)),
		whole(contract.LabelObsoleteHostModel, obsoleteHostModel, host),
	}
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
func confidential(key string, get func(*capabilitiesv1.ConfidentialComputing) *capabilitiesv1.ConfidentialFeature, feature fact.Path) family {
	return whole(key, func(v *view, add adder) {
		if v.hardware() && get(v.doc.GetConfidentialComputing()).GetSupported() {
			add("", yes)
		}
	}, from(feature))
}
