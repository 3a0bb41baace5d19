package defaults

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
)

// memory of a guest that says nothing is what its pod requests, or may use.
func memory(d *kubevirtv1.DomainSpec) {
	if d.Memory != nil && d.Memory.Guest != nil {
		return
	}
	for _, list := range []corev1.ResourceList{d.Resources.Requests, d.Resources.Limits} {
		if quantity, set := list[corev1.ResourceMemory]; set {
			guest := quantity.DeepCopy()
			made(&d.Memory).Guest = &guest
			return
		}
	}
}

// processors of a guest that has no topology are as many as its pod may use, or requests. What a
// topology leaves out is one.
func processors(d *kubevirtv1.DomainSpec, c configuration.Configuration) {
	limit, limited := d.Resources.Limits[corev1.ResourceCPU]
	if _, requested := d.Resources.Requests[corev1.ResourceCPU]; !requested {
		switch {
		case d.CPU != nil && d.CPU.DedicatedCPUPlacement: // it requests whole CPUs
		case limited:
			request(d, limit)
		case c.CPURequest != nil:
			request(d, *c.CPURequest)
		}
	}
	cpu := made(&d.CPU)
	if cpu.Sockets == 0 && cpu.Cores == 0 && cpu.Threads == 0 {
		if limited {
			cpu.Sockets = whole(limit)
		} else if requested, set := d.Resources.Requests[corev1.ResourceCPU]; set {
			cpu.Sockets = whole(requested)
		}
	}
	cpu.Sockets, cpu.Cores, cpu.Threads = cmp.Or(cpu.Sockets, 1), cmp.Or(cpu.Cores, 1), cmp.Or(cpu.Threads, 1)
}

func request(d *kubevirtv1.DomainSpec, cpu resource.Quantity) {
	if d.Resources.Requests == nil {
		d.Resources.Requests = make(corev1.ResourceList)
	}
	d.Resources.Requests[corev1.ResourceCPU] = cpu.DeepCopy()
}

// whole is a number of CPUs rounded up. Validation refuses more than a VM can have.
func whole(cpus resource.Quantity) int32 {
	const most = 1 << 16
	return int32(min(max(cpus.Value(), 1), most))
}

// firmware is UEFI where there is no BIOS.
func firmware(d *kubevirtv1.DomainSpec, v values) {
	f := made(&d.Firmware)
	if v.uefi && f.Bootloader == nil {
		no := false
		f.Bootloader = &kubevirtv1.Bootloader{EFI: &kubevirtv1.EFI{SecureBoot: &no}}
	}
}

// features that are named are on, and so is what they need.
func features(f *kubevirtv1.Features, cpu *kubevirtv1.CPU) {
	if f == nil {
		return
	}
	on(&f.ACPI.Enabled)
	if f.APIC != nil {
		on(&f.APIC.Enabled)
	}
	if f.HypervPassthrough != nil {
		on(&f.HypervPassthrough.Enabled)
	}
	named(f.SMM, f.PVSpinlock)
	if f.Hyperv != nil {
		hyperv(f.Hyperv, cpu)
	}
}

// named turns on the features that there are.
func named(features ...*kubevirtv1.FeatureState) {
	for _, f := range features {
		if f != nil {
			on(&f.Enabled)
		}
	}
}

// spinlockRetries is how often a Windows guest tries a lock before it gives way.
const spinlockRetries = 4096

func hyperv(h *kubevirtv1.FeatureHyperv, cpu *kubevirtv1.CPU) {
	isOn := func(f *kubevirtv1.FeatureState) bool { return f != nil && (f.Enabled == nil || *f.Enabled) }
	var timer, flush *kubevirtv1.FeatureState
	if h.SyNICTimer != nil {
		timer = &h.SyNICTimer.FeatureState
		named(h.SyNICTimer.Direct)
	}
	if h.TLBFlush != nil {
		flush = &h.TLBFlush.FeatureState
		named(h.TLBFlush.Direct, h.TLBFlush.Extended)
	}
	if isOn(timer) {
		made(&h.SyNIC)
	}
	if isOn(h.SyNIC) || isOn(timer) || isOn(flush) || isOn(h.IPI) || isOn(h.Reenlightenment) {
		made(&h.VPIndex)
	}
	if isOn(h.EVMCS) {
		made(&h.VAPIC)
		if !slices.ContainsFunc(cpu.Features, func(f kubevirtv1.CPUFeature) bool { return f.Name == "vmx" }) {
			cpu.Features = append(cpu.Features, kubevirtv1.CPUFeature{Name: "vmx", Policy: kubevirtv1.CPUFeatureRequire})
		}
	}
	named(h.Relaxed, h.VAPIC, h.VPIndex, h.Runtime, h.SyNIC, h.Reset, h.Frequencies, h.Reenlightenment, h.IPI, h.EVMCS, timer, flush)
	if h.VendorID != nil {
		named(&h.VendorID.FeatureState)
	}
	if s := h.Spinlocks; s != nil {
		named(&s.FeatureState)
		if s.Spinlocks == nil && *s.Enabled {
			retries := int64(spinlockRetries)
			s.Spinlocks = &retries
		}
	}
}

// timers that are named are there.
func timers(c *kubevirtv1.Clock) {
	if c == nil || c.Timer == nil {
		return
	}
	t := c.Timer
	for _, timer := range []*kubevirtv1.TimerState{t.KVM, t.Hyperv} {
		if timer != nil {
			on(&timer.Present)
		}
	}
	if t.HPET != nil {
		on(&t.HPET.Present)
	}
	if t.PIT != nil {
		on(&t.PIT.Present)
	}
	if t.RTC != nil {
		on(&t.RTC.Present)
	}
}
