package fault

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/proto/vmlet/node/v1/faults"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
)

// TestParts: faults are told in parts, as they are the whole of what is wrong; callers find them in the error's status.
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
	for name, c := range map[string]struct {
		err  error
		want []contract.Fault
	}{
		"fields":           {fields, want},
		"fields of a VM":   {fmt.Errorf("vm default/web: %w", fields), want},
		"a shim's":         {fmt.Errorf("vm default/web: %w", disk), []contract.Fault{{Field: "disks[1].path", Text: "content differs"}}},
		"a shim's of none": {&shim.Error{Message: "no room"}, nil},
		"more follows":     {errors.Join(fields, errors.New("and its memory is lost")), nil},
		"a sentence":       {errors.New("no KVM"), nil},
	} {
		if got := Parts(c.err); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if got := faults.OfError(ToStatus(c.err)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: the status has %+v, want %+v", name, got, c.want)
		}
	}
}
