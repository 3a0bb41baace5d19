package fault

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/proto/vmlet/node/v1/faults"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
)

// TestParts: callers find the faults of an error in its status, whatever made it.
func TestParts(t *testing.T) {
	fields := spec.FieldErrors{
		{Field: "cpu.model", Message: "no avx512", UseVMM: "qemu"},
		{Field: "memory.hugePages", Message: "restore it eagerly", Advice: "without --lazy"},
	}
	want := []contract.Fault{
		{Field: "cpu.model", Text: "no avx512", UseVMM: "qemu"},
		{Field: "memory.hugePages", Text: "restore it eagerly", Advice: "without --lazy"},
	}
	disk := &shim.Error{Code: shim.CodeChangedDisk, Field: "disks[1].path", Message: "content differs"}
	state := &lifecycle.StateError{Name: "default/web", State: nodev1.State_STATE_SAVED, Operation: lifecycle.Pause, Advice: "start it"}
	for name, c := range map[string]struct {
		err  error
		want []contract.Fault
	}{
		"fields":           {fields, want},
		"fields of a VM":   {fmt.Errorf("vm default/web: %w", fields), want},
		"a shim's":         {fmt.Errorf("vm default/web: %w", disk), []contract.Fault{{Field: "disks[1].path", Text: "content differs"}}},
		"a shim's of none": {&shim.Error{Message: "no room"}, []contract.Fault{{Text: "no room"}}},
		"a shim's parts":   {&shim.Error{Message: "/d: no", Parts: []contract.Fault{{Object: "/d", Text: "/d: no"}}}, []contract.Fault{{Object: "/d", Text: "/d: no"}}},
		"more follows":     {errors.Join(fields, errors.New("and its memory is lost")), append(slices.Clone(want), contract.Fault{Text: "and its memory is lost"})},
		"a sentence":       {errors.New("no KVM"), []contract.Fault{{Text: "no KVM"}}},
		"a state":          {state, []contract.Fault{{Text: "the VM is saved: start it"}}},
		"of this VM":       {Errorf(codes.Aborted, "%s: %w", contract.ThisVM("a"), disk), []contract.Fault{{Field: "disks[1].path", Text: "content differs"}}},
		"in a field":       {InField(codes.Aborted, "cpu", "as %s", contract.OtherVM("b")), []contract.Fault{{Field: "cpu", Text: "as vm b", OtherVM: "b"}}},
		"said":             {fmt.Errorf("x: %w", &contract.Quoted{Sentence: "no", Parts: []contract.Fault{{Field: "cpu", Text: "no"}}}), []contract.Fault{{Field: "cpu", Text: "no"}}},
		"said alone":       {fmt.Errorf("x: %w", &contract.Quoted{Sentence: "no"}), []contract.Fault{{Text: "x: no"}}},
	} {
		if got := faults.FromProto(Parts(c.err)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if got := faults.OfError(ToStatus(c.err)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: the status has %+v, want %+v", name, got, c.want)
		}
	}
}
