package qemu

import (
	"strconv"

	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// hypervFlags are the properties of a CPU that QEMU has for switches of features.hyperv.
func hypervFlags() []struct{ name, flag string } {
	return []struct{ name, flag string }{
		{"passthrough", "hv-passthrough"},
		{"relaxed", "hv-relaxed"},
		{"vapic", "hv-vapic"},
		{"vpindex", "hv-vpindex"},
		{"runtime", "hv-runtime"},
		{"synic", "hv-synic"},
		{"synicTimer", "hv-stimer"},
		{"synicTimerDirect", "hv-stimer-direct"},
		{"reset", "hv-reset"},
		{"frequencies", "hv-frequencies"},
		{"reenlightenment", "hv-reenlightenment"},
		{"tlbflush", "hv-tlbflush"},
		{"tlbflushDirect", "hv-tlbflush-direct"},
		{"tlbflushExtended", "hv-tlbflush-ext"},
		{"ipi", "hv-ipi"},
		{"evmcs", "hv-evmcs"},
	}
}

// enlightenments are what the hypervisor shows of itself through the CPU. It is KVM's
// doing: under others a guest sees nothing of it, and copes.
func (b *builder) enlightenments() []string {
	if b.req.Hypervisor != spec.HypervisorKVM || b.details.Arch != spec.ArchAMD64 {
		return nil
	}
	b.checkEnlightenments()
	f, h := b.spec.GetFeatures(), b.spec.GetFeatures().GetHyperv()
	var flags []string
	if f.GetKvmHidden() {
		flags = append(flags, "kvm", "off")
	}
	if f != nil && f.PvSpinlock != nil {
		flags = append(flags, pvSpinlock, onOff(f.GetPvSpinlock()))
	}
	if t := b.spec.GetClock().GetKvm(); t != nil && t.Present != nil {
		flags = append(flags, "kvmclock", onOff(t.GetPresent()))
	}
	for _, each := range hypervFlags() {
		if spec.HypervOn(h, each.name) {
			flags = append(flags, each.flag, "on")
		}
	}
	if b.spec.GetClock().GetHyperv().GetPresent() {
		flags = append(flags, "hv-time", "on")
	}
	if n := h.GetSpinlocks(); n > 0 {
		flags = append(flags, "hv-spinlocks", strconv.FormatUint(uint64(n), 10))
	}
	if id := h.GetVendorId(); id != "" {
		flags = append(flags, "hv-vendor-id", id)
	}
	return flags
}

const pvSpinlock = "kvm-pv-unhalt"

// checkEnlightenments refuses what this node's KVM hasn't.
func (b *builder) checkEnlightenments() {
	if b.spec.GetFeatures().GetPvSpinlock() && len(b.accel.Known) > 0 && !contains(b.accel.Available, pvSpinlock) {
		b.faults.Add("features.pvSpinlock", "KVM on this node can't: leave it out")
	}
}

// RefuseSave refuses a VM with whatever the node has of Hyper-V: QEMU saves none, as
// nothing says what another node would have to have.
func (QEMU) RefuseSave(s *specv1.VirtualMachineSpec) (faults spec.FieldErrors) {
	if s.GetFeatures().GetHyperv().GetPassthrough() {
		faults.Add("features.hyperv.passthrough", "QEMU doesn't save what depends on the node: name the parts of %s that the guest needs, or stop the VM instead%s",
			contract.FieldName("features.hyperv"), contract.Reason(contract.FaultSuspendInstead))
	}
	return faults
}
