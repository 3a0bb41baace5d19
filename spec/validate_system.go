package spec

import (
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/protobuf/proto"
)

// system finds fault with what the guest learns of its machine.
func (v *validator) system(s *specv1.SystemInformation) {
	v.uuid("system.uuid", s.GetUuid())
	for _, text := range []struct{ field, value string }{
		{"system.serial", s.GetSerial()},
		{"system.manufacturer", s.GetManufacturer()},
		{"system.product", s.GetProduct()},
		{"system.version", s.GetVersion()},
		{"system.sku", s.GetSku()},
		{"system.family", s.GetFamily()},
		{"system.assetTag", s.GetAssetTag()},
	} {
		if len(text.value) > MaxSystemText {
			v.add(text.field, "%d bytes: at most %d", len(text.value), MaxSystemText)
		}
		v.line(text.field, text.value)
	}
}

// uuid takes the one form that every VMM reads.
func (v *validator) uuid(field, text string) {
	if text == "" {
		return
	}
	id, err := uuid.Parse(text)
	switch {
	case err != nil || len(text) != len(uuid.Nil.String()):
		v.add(field, "%.80q is not a UUID: want one such as 5d307ca9-b3ef-428c-8861-06e72d69f223", text)
	case id == uuid.Nil:
		v.add(field, "is all zeros, which says that there is none: want another, or leave it out")
	}
}

func (v *validator) features(s *specv1.VirtualMachineSpec) {
	h := s.GetFeatures().GetHyperv()
	if h == nil {
		return
	}
	if n := h.GetSpinlocks(); n != 0 && n < MinSpinlocks {
		v.add("features.hyperv.spinlocks", "%d: want 0 (never) or at least %d", n, MinSpinlocks)
	}
	if h.VendorId != nil && !vendorID().MatchString(h.GetVendorId()) {
		v.add("features.hyperv.vendorId", "%.80q: want 1 to %d letters, digits, spaces and any of -_.", h.GetVendorId(), MaxVendorID)
	}
	h = proto.CloneOf(h)
	fillHyperV(h) // what is on needs more than is set
	for _, need := range hypervNeeds() {
		if HypervOn(h, need.of) && hypervSwitch(h, need.wants) == off {
			v.add("features.hyperv."+need.of, "needs %s, which is false: leave that out, or turn both off", contract.FieldName(fmt.Sprintf("features.hyperv.%s", need.wants)))
		}
	}
	if t := s.GetClock().GetHyperv(); h.GetSynicTimer() && t != nil && t.Present != nil && !t.GetPresent() {
		v.add("features.hyperv.synicTimer", "needs the clock that %s turns off: leave that out, or turn both off", contract.FieldName("clock.hyperv.present"))
	}
	i := slices.IndexFunc(s.GetCpu().GetFeatures(), func(f *specv1.CPUFeature) bool {
		return f.GetName() == "vmx" && TakesAway(f)
	})
	if h.GetEvmcs() && i >= 0 {
		v.add("features.hyperv.evmcs", "needs the CPU feature vmx, which %s takes away", contract.FieldName(fmt.Sprintf("cpu.features[%d]", i)))
	}
}

func (v *validator) clock(c *specv1.Clock) {
	if seconds := c.GetOffsetSeconds(); seconds < -MaxClockOffset || seconds > MaxClockOffset {
		v.add("clock.offsetSeconds", "%d: at most a day, %d, either way", seconds, MaxClockOffset)
	}
	if _, set := c.GetBase().(*specv1.Clock_Timezone); set && (len(c.GetTimezone()) > MaxTimezone || !timezone().MatchString(c.GetTimezone())) {
		v.add("clock.timezone", "%.80q is not a time zone's name such as Europe/Berlin", c.GetTimezone())
	}
	for _, t := range []struct {
		name     string
		timer    *specv1.Timer
		policies []string
	}{
		{"hpet", c.GetHpet(), []string{TickDelay, TickCatchup, TickMerge, TickDiscard}},
		{"kvm", c.GetKvm(), nil},
		{"pit", c.GetPit(), []string{TickDelay, TickCatchup, TickDiscard}},
		{"rtc", c.GetRtc(), []string{TickDelay, TickCatchup}},
		{"hyperv", c.GetHyperv(), nil},
	} {
		v.timer("clock."+t.name, t.timer, t.policies, t.name == "rtc")
	}
}

func (v *validator) timer(field string, t *specv1.Timer, policies []string, tracks bool) {
	if policies != nil {
		v.oneOf(field+".tickPolicy", t.GetTickPolicy(), policies)
	} else if t.GetTickPolicy() != "" {
		v.add(field+".tickPolicy", "it loses no ticks: leave it out")
	}
	if tracks {
		v.oneOf(field+".track", t.GetTrack(), rtcTracks())
	} else if t.GetTrack() != "" {
		v.add(field+".track", "only %s has it", contract.FieldName("clock.rtc"))
	}
}
