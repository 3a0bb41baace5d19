package convert

import (
	"strings"

	"google.golang.org/protobuf/proto"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// defaultSpinlocks is how often a guest tries a lock where only the feature is named
// (KubeVirt's default).
const defaultSpinlocks = 4096

// features has what differs from every VMM's own defaults: ACPI and APIC where they are off,
// all else where it is on.
func features(f *kubevirtv1.Features) *specv1.Features {
	if f == nil {
		return nil
	}
	out := &specv1.Features{
		Acpi:   onlyOff(f.ACPI.Enabled),
		Hyperv: hyperv(f.Hyperv, f.HypervPassthrough),
	}
	if f.APIC != nil {
		out.Apic = onlyOff(f.APIC.Enabled)
	}
	if f.SMM != nil {
		out.Smm = proto.Bool(enabled(f.SMM))
	}
	if f.KVM != nil && f.KVM.Hidden {
		out.KvmHidden = proto.Bool(true)
	}
	if f.PVSpinlock != nil {
		out.PvSpinlock = proto.Bool(enabled(f.PVSpinlock))
	}
	if proto.Size(out) == 0 {
		return nil
	}
	return out
}

// enabled says whether a feature is on: one that is named is, unless it says otherwise.
func enabled(f *kubevirtv1.FeatureState) bool {
	return f != nil && (f.Enabled == nil || *f.Enabled)
}

func onlyOff(on *bool) *bool {
	if on == nil || *on {
		return nil
	}
	return proto.Bool(false)
}

// on is set where a feature is.
func on(f *kubevirtv1.FeatureState) *bool {
	if !enabled(f) {
		return nil
	}
	return proto.Bool(true)
}

func hyperv(h *kubevirtv1.FeatureHyperv, passthrough *kubevirtv1.HypervPassthrough) *specv1.HyperV {
	out := new(specv1.HyperV)
	if passthrough != nil {
		out.Passthrough = on(&kubevirtv1.FeatureState{Enabled: passthrough.Enabled})
	}
	if h != nil {
		out.Relaxed, out.Vapic, out.Vpindex = on(h.Relaxed), on(h.VAPIC), on(h.VPIndex)
		out.Runtime, out.Synic, out.Reset_ = on(h.Runtime), on(h.SyNIC), on(h.Reset)
		out.Frequencies, out.Reenlightenment = on(h.Frequencies), on(h.Reenlightenment)
		out.Ipi, out.Evmcs = on(h.IPI), on(h.EVMCS)
		withValues(h, out)
	}
	if proto.Size(out) == 0 {
		return nil
	}
	return out
}

// withValues fills in the enlightenments that are more than on or off.
func withValues(h *kubevirtv1.FeatureHyperv, out *specv1.HyperV) {
	if s := h.Spinlocks; s != nil && enabled(&s.FeatureState) {
		out.Spinlocks = proto.Uint32(defaultSpinlocks)
		if s.Spinlocks != nil {
			out.Spinlocks = proto.Uint32(uint32(*s.Spinlocks))
		}
	}
	if t := h.SyNICTimer; t != nil && enabled(&t.FeatureState) {
		out.SynicTimer, out.SynicTimerDirect = proto.Bool(true), on(t.Direct)
	}
	if v := h.VendorID; v != nil && enabled(&v.FeatureState) {
		out.VendorId = proto.String(v.VendorID)
	}
	if t := h.TLBFlush; t != nil && enabled(&t.FeatureState) {
		out.Tlbflush, out.TlbflushDirect, out.TlbflushExtended = proto.Bool(true), on(t.Direct), on(t.Extended)
	}
}

func clock(c *kubevirtv1.Clock) *specv1.Clock {
	if c == nil {
		return nil
	}
	out := new(specv1.Clock)
	switch {
	case c.UTC != nil && c.UTC.OffsetSeconds != nil:
		out.Base = &specv1.Clock_OffsetSeconds{OffsetSeconds: *c.UTC.OffsetSeconds}
	case c.Timezone != nil && *c.Timezone != "":
		// KubeVirt's own guide has "America/New York".
		out.Base = &specv1.Clock_Timezone{Timezone: strings.ReplaceAll(*c.Timezone, " ", "_")}
	}
	if t := c.Timer; t != nil {
		timers(t, out)
	}
	if out.Base == nil && proto.Size(out) == 0 {
		return nil
	}
	return out
}

func timers(t *kubevirtv1.Timer, out *specv1.Clock) {
	if t.HPET != nil {
		out.Hpet = timer(t.HPET.TimerState, t.HPET.TickPolicy)
	}
	if t.KVM != nil {
		out.Kvm = timer(*t.KVM, "")
	}
	if t.PIT != nil {
		out.Pit = timer(t.PIT.TimerState, t.PIT.TickPolicy)
	}
	if t.RTC != nil {
		out.Rtc = timer(t.RTC.TimerState, t.RTC.TickPolicy)
		out.Rtc.Track = t.RTC.Track
	}
	if t.Hyperv != nil {
		out.Hyperv = timer(*t.Hyperv, "")
	}
}

// timer is present where it is named, unless it says otherwise.
func timer(state kubevirtv1.TimerState, policy kubevirtv1.TickPolicy) *specv1.Timer {
	return &specv1.Timer{
		Present:    proto.Bool(state.Present == nil || *state.Present),
		TickPolicy: string(policy),
	}
}
