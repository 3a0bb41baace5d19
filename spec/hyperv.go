package spec

import (
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// HypervOn tells whether a switch of features.hyperv, by its name in a specification
// ("synicTimer"), is on.
func HypervOn(h *specv1.HyperV, name string) bool { return hypervSwitch(h, name) == on }

// AsksHyperV tells whether any of it is asked for.
func AsksHyperV(h *specv1.HyperV) (asks bool) {
	h.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		// What is set to false, 0 or nothing is not.
		asks = asks || !value.Equal(f.Default())
		return !asks
	})
	return asks
}

// setting is a switch that may be left to a default.
type setting int

const (
	unset setting = iota
	off
	on
)

// need is a part of Hyper-V that does nothing without another, by their names.
type need struct{ of, wants string }

// hypervNeeds are in such an order that each comes before those of what it wants
// (kvm_hyperv_properties in QEMU's target/i386/kvm/kvm.c, and Hyper-V's specification).
func hypervNeeds() []need {
	return []need{
		{"synicTimerDirect", "synicTimer"}, {"synicTimer", "synic"}, {"synic", "vpindex"},
		{"tlbflushDirect", "tlbflush"}, {"tlbflushDirect", "vapic"}, {"tlbflushExtended", "tlbflush"},
		{"tlbflush", "vpindex"}, {"ipi", "vpindex"}, {"reenlightenment", "vpindex"}, {"evmcs", "vapic"},
	}
}

func hypervSwitch(h *specv1.HyperV, name string) setting {
	m := h.ProtoReflect()
	switch f := hypervField(m, name); {
	case !m.Has(f):
		return unset
	case m.Get(f).Bool():
		return on
	}
	return off
}

// hypervField is found: the names are those of this program.
func hypervField(m protoreflect.Message, name string) protoreflect.FieldDescriptor {
	return m.Descriptor().Fields().ByJSONName(name)
}

func fillHyperV(h *specv1.HyperV) {
	m := h.ProtoReflect()
	for _, n := range hypervNeeds() {
		if hypervSwitch(h, n.of) == on && hypervSwitch(h, n.wants) == unset {
			m.Set(hypervField(m, n.wants), protoreflect.ValueOfBool(true))
		}
	}
}

// finaliseHyperV turns on what is needed by what is on.
func finaliseHyperV(s *specv1.VirtualMachineSpec) {
	h := s.GetFeatures().GetHyperv()
	if h == nil {
		return
	}
	fillHyperV(h)
	if !h.GetSynicTimer() {
		return
	}
	if s.Clock == nil {
		s.Clock = new(specv1.Clock)
	}
	if s.Clock.Hyperv == nil {
		s.Clock.Hyperv = new(specv1.Timer)
	}
	if s.Clock.Hyperv.Present == nil {
		s.Clock.Hyperv.Present = proto.Bool(true)
	}
}
