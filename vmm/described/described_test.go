package described

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/qemu"

	"google.golang.org/protobuf/proto"
)

// TestDescribed: what a VMM says of itself is the same after it has travelled as JSON.
func TestDescribed(t *testing.T) {
	for _, v := range []vmm.Planner{qemu.QEMU{}, cloudhypervisor.CloudHypervisor{}} {
		said, err := Of(v, "1", "amd64")
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		var got VMM
		if err := json.Unmarshal(encoded, &got); err != nil {
			t.Fatal(err)
		}
		if got.Name() != v.Name() || got.Version != "1" {
			t.Errorf("name %q, version %q", got.Name(), got.Version)
		}
		if g, w := got.Traits("amd64"), v.Traits("amd64"); !reflect.DeepEqual(g, w) {
			t.Errorf("%s: traits are %+v, want %+v", v.Name(), g, w)
		}
		if g, w := got.MemoryCosts(), vmm.MemoryCostsOf(v); g != w {
			t.Errorf("%s: costs are %+v, want %+v", v.Name(), g, w)
		}
		g, w := got.Defaults("amd64"), vmm.DefaultsOf(v, "amd64")
		if !proto.Equal(g.Layer, w.Layer) || !proto.Equal(g.Disk, w.Disk) {
			t.Errorf("%s: layer and disk are %v, %v, want %v, %v", v.Name(), g.Layer, g.Disk, w.Layer, w.Disk)
		}
		g.Layer, w.Layer, g.Disk, w.Disk = nil, nil, nil, nil
		if g != w {
			t.Errorf("%s: defaults are %+v, want %+v", v.Name(), g, w)
		}
		if _, err := got.Plan(vmm.PlanRequest{}); err == nil {
			t.Errorf("%s plans here", v.Name())
		}
	}
}

// TestOneOfWhichOnlyTheNameIsKnown has the least, and is refused nothing: its driver may know better.
func TestOneOfWhichOnlyTheNameIsKnown(t *testing.T) {
	v := VMM{ID: "strange"}
	if got, want := v.Traits("amd64"), (vmm.Traits{Disks: []string{spec.BusVirtio}}); !reflect.DeepEqual(got, want) {
		t.Errorf("traits are %+v, want %+v", got, want)
	}
	if got := v.Defaults("amd64"); got.Layer != nil {
		t.Errorf("it has defaults: %+v", got)
	}
	if v.MemoryCosts().Base == 0 {
		t.Error("it costs nothing")
	}
	if faults := v.Validate(&specv1.VirtualMachineSpec{MachineType: "q35"}, "amd64"); faults != nil {
		t.Errorf("refused: %v", faults)
	}
}

// TestValidateByTraits names the field that asks for what the VMM's machines have not.
func TestValidateByTraits(t *testing.T) {
	v := VMM{ID: "strange", Machines: map[string]Machine{"amd64": {Traits: vmm.Traits{Disks: []string{"virtio"}}, Defaults: Defaults{Layer: json.RawMessage(`{"machineType":"strange"}`)}}}}
	for _, c := range []struct {
		name string
		spec *specv1.VirtualMachineSpec
		arch string
		want string // empty: nothing is refused
	}{
		{"what it has", &specv1.VirtualMachineSpec{MachineType: "strange", Disks: []*specv1.Disk{{Bus: "virtio"}, {}}}, "amd64", ""},
		{"a bus", &specv1.VirtualMachineSpec{Disks: []*specv1.Disk{{Bus: "virtio"}, {Bus: "sata"}}}, "amd64", "disks[1].bus"},
		{"a machine", &specv1.VirtualMachineSpec{MachineType: "q35"}, "amd64", "machineType"},
		{"a screen", &specv1.VirtualMachineSpec{Devices: &specv1.Devices{Video: &specv1.Video{}}}, "amd64", "devices.video"},
		{"another architecture", &specv1.VirtualMachineSpec{}, "arm64", "vmm"},
	} {
		faults := v.Validate(c.spec, c.arch)
		if (c.want == "") != (len(faults) == 0) || !strings.Contains(faults.Error(), c.want) {
			t.Errorf("%s: refused %v, want %q", c.name, faults, c.want)
		}
	}
}

// TestReport: what nodes say is bounded where it is written, and where it is read.
func TestReport(t *testing.T) {
	small := Report{Profile: "own", Image: "a", VMMs: []Found{{VMM: VMM{ID: "strange"}, Hypervisors: map[string]string{"kvm": ""}}}}
	got, err := Decode(small.Encode())
	if err != nil || !got.VMMs[0].Works() {
		t.Errorf("read %+v, %v", got, err)
	}
	large := small
	large.VMMs = []Found{{VMM: VMM{ID: "strange", Version: strings.Repeat("9", MaxReport)}}}
	if got, err := Decode(large.Encode()); err != nil || got.Error == "" || len(got.VMMs) != 0 {
		t.Errorf("what is too long is read as %+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"too long": strings.Repeat(" ", MaxReport+1), "no report": "[]", "a name that is none": `{"vmms":[{"vmm":{"name":"A B"}}]}`,
		"too many": `{"vmms":[` + strings.TrimSuffix(strings.Repeat(`{"vmm":{"name":"a"}},`, maxVMMs+1), ",") + `]}`,
	} {
		if got, err := Decode(text); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
	said, err := Decode(`{"vmms":[{"vmm":{"name":"a"},"error":"` + strings.Repeat("e", 2*maxReason) + `"}]}`)
	if err != nil || len(said.VMMs[0].Error) != maxReason {
		t.Errorf("a reason of %d bytes is taken, %v", len(said.VMMs[0].Error), err)
	}
}
