package spec

import (
	"time"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Target is what a specification is completed for.
type Target struct {
	// ID of the VM, a UUID; MAC addresses are made from it.
	ID string
	// Hypervisor is the name of one ("kvm"), VMM "qemu" or "cloud-hypervisor":
	// what was chosen where the specification says "auto".
	Hypervisor string
	VMM        string
	// Arch is Go's name: "amd64", "arm64".
	Arch string
	// Defaults are the VMM's own.
	Defaults VMMDefaults
}

// VMMDefaults are the defaults that a VMM brings with it, for guests of one
// architecture. The zero value has none.
type VMMDefaults struct {
	// Layer fills what is unset: the machine type, the firmware, devices that
	// only this VMM has. It goes before what is for an architecture or a
	// hypervisor, but not before what is for this hypervisor on this architecture.
	Layer *specv1.VirtualMachineSpec
	// Watchdog is the model of a watchdog that names none.
	Watchdog string
	// TPM is the model of a TPM that names none.
	TPM string
	// CDROMBus is that of a CD-ROM which names none.
	CDROMBus string
	// Disk has what each disk has that doesn't say; nil: there is nothing. It has no list.
	Disk *specv1.Disk
	// UserNetwork: an interface that says nothing else is in a network of the
	// VMM's own. Else it stays without, which the VMM refuses.
	UserNetwork bool
}

// Layers are defaults by what they are for: "kvm/amd64" (a hypervisor and an
// architecture), "amd64" (an architecture), "kvm" (a hypervisor) and ""
// (everything). They may be nil. What lists hold is not merged: a layer's list
// counts only where the specification has none.
type Layers map[string]*specv1.VirtualMachineSpec

// BaseLayers returns the defaults that depend on no hypervisor and on no VMM. A
// hypervisor brings its own, and hypervisor.Registry puts them together; those of a
// VMM are in the Target.
func BaseLayers() Layers {
	return Layers{
		"": {
			Cpu:    &specv1.CPU{Sockets: 1, Cores: 1, Threads: 1},
			Memory: &specv1.Memory{Size: "512Mi"},
			Devices: &specv1.Devices{
				Console: proto.Bool(true),
				Entropy: proto.Bool(true),
			},
			StopGracePeriod: durationpb.New(30 * time.Second),
		},
	}
}

// Default returns a copy of the specification in which all that was not set has
// its default: from the layers, the most specific first, each filling only what
// is still unset; then what depends on other fields. It never changes what is
// set, but for "auto", which becomes what the target says. Default of its own
// result changes nothing.
func Default(spec *specv1.VirtualMachineSpec, target Target, layers Layers) *specv1.VirtualMachineSpec {
	out := clone(spec)
	for _, layer := range []*specv1.VirtualMachineSpec{
		layers[target.Hypervisor+"/"+target.Arch], target.Defaults.Layer,
		layers[target.Arch], layers[target.Hypervisor], layers[""],
	} {
		if layer != nil {
			// Of a copy: lists and messages are handed on as they are.
			fill(out.ProtoReflect(), clone(layer).ProtoReflect())
		}
	}
	finalise(out, target)
	return out
}

// fill sets what is not set in dst to what is set in src, message by message.
func fill(dst, src protoreflect.Message) {
	src.Range(func(f protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if other := f.ContainingOneof(); other != nil && dst.WhichOneof(other) != nil && dst.WhichOneof(other) != f {
			return true
		}
		isMessage := f.Kind() == protoreflect.MessageKind && !f.IsList() && !f.IsMap()
		// A duration is one value, not a message to be filled field by field.
		merge := isMessage && f.Message().FullName() != "google.protobuf.Duration"
		switch {
		case merge:
			fill(dst.Mutable(f).Message(), value.Message())
		case !dst.Has(f):
			dst.Set(f, value)
		}
		return true
	})
}
