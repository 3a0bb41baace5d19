package cloudhypervisor

import (
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// refuseHardware finds what the one machine that cloud-hypervisor has can't be. What it
// is anyway may be asked for.
func (b *builder) refuseHardware() {
	b.refuseSystem()
	b.refuseFeatures()
	b.refuseClock()
	if b.spec.GetOnReboot() == spec.RebootEnd {
		b.lacks("onReboot", "cloud-hypervisor starts a guest again that reboots: want restart")
	}
	if b.spec.GetDevices().GetVideo() != nil {
		b.lacks("devices.video", "cloud-hypervisor has no display: leave it out")
	}
	if len(b.spec.GetDevices().GetInputs()) > 0 {
		b.lacks("devices.inputs", "cloud-hypervisor has neither keyboard nor tablet: leave them out")
	}
}

// refuseSystem is for all but uuid and serial.
func (b *builder) refuseSystem() {
	s := b.spec.GetSystem()
	for _, text := range []struct{ field, value string }{
		{"manufacturer", s.GetManufacturer()}, {"product", s.GetProduct()}, {"version", s.GetVersion()},
		{"sku", s.GetSku()}, {"family", s.GetFamily()}, {"assetTag", s.GetAssetTag()},
	} {
		if text.value != "" {
			b.lacks("system."+text.field, "cloud-hypervisor tells the guest uuid and serial alone: leave it out")
		}
	}
}

func (b *builder) refuseFeatures() {
	f := b.spec.GetFeatures()
	if f == nil {
		return
	}
	b.fixed("features.acpi", f.Acpi, true)
	b.fixed("features.apic", f.Apic, true)
	b.fixed("features.smm", f.Smm, false)
	b.fixed("features.kvmHidden", f.KvmHidden, false)
	if f.PvSpinlock != nil {
		b.lacks("features.pvSpinlock", "cloud-hypervisor has no switch for it: leave it out")
	}
	if spec.AsksHyperV(f.GetHyperv()) {
		b.lacks("features.hyperv", "cloud-hypervisor has all of what it knows of Hyper-V or nothing: want the CPU feature kvm_hyperv")
	}
}

func (b *builder) refuseClock() {
	c := b.spec.GetClock()
	if c.GetOffsetSeconds() != 0 {
		b.lacks("clock.offsetSeconds", "cloud-hypervisor's clock shows UTC: want 0")
	}
	if c.GetTimezone() != "" {
		b.lacks("clock.timezone", "cloud-hypervisor's clock shows UTC: leave it out")
	}
	b.fixedTimer("clock.hpet", c.GetHpet(), false)
	b.fixedTimer("clock.kvm", c.GetKvm(), true)
	b.fixedTimer("clock.pit", c.GetPit(), false)
	b.fixedTimer("clock.rtc", c.GetRtc(), true)
	b.fixedTimer("clock.hyperv", c.GetHyperv(), false)
}

// fixed is a switch that can't be turned.
func (b *builder) fixed(field string, asked *bool, has bool) {
	if asked != nil && *asked != has {
		b.lacks(field, "cloud-hypervisor's machine has no other than %t: leave it out", has)
	}
}

func (b *builder) fixedTimer(field string, t *specv1.Timer, has bool) {
	if t == nil {
		return
	}
	b.fixed(field+".present", t.Present, has)
	if t.GetTickPolicy() != "" {
		b.lacks(field+".tickPolicy", "%q: cloud-hypervisor has no choice: leave it out", t.GetTickPolicy())
	}
	if t.GetTrack() != "" && t.GetTrack() != spec.TrackWall {
		b.lacks(field+".track", "%q: cloud-hypervisor's clock follows the host's: want wall", t.GetTrack())
	}
}
