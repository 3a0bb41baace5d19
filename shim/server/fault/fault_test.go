package fault

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/shim"
)

// TestParts: an error of the shim has the sentence for agents that know no parts, and its parts, whatever is around it.
func TestParts(t *testing.T) {
	inUse := New(shim.CodePrecondition, "disks[0].path", "%s: in use%s", contract.ObjectName("/d"), contract.Advice("fuser -v /d names it"))
	parts := []contract.Fault{{Field: "disks[0].path", Object: "/d", Text: "/d: in use", Advice: "fuser -v /d names it"}}
	said := []contract.Fault{{Field: "disks[0].path", Object: "/d", Text: "/d: in use: QEMU ended", Advice: "fuser -v /d names it"}}
	for name, c := range map[string]struct {
		got  *shim.Error
		want shim.Error
	}{
		"new":    {inUse, shim.Error{Code: shim.CodePrecondition, Field: "disks[0].path", Message: "/d: in use (fuser -v /d names it)", Parts: parts}},
		"of it":  {Of(inUse), shim.Error{Code: shim.CodePrecondition, Field: "disks[0].path", Message: "/d: in use (fuser -v /d names it)", Parts: parts}},
		"around": {Of(fmt.Errorf("start: %w", inUse)), shim.Error{Code: shim.CodePrecondition, Field: "disks[0].path", Message: "start: disks[0].path: /d: in use (fuser -v /d names it)", Parts: parts}},
		"more": {Saying(inUse, errors.New("QEMU ended")), shim.Error{
			Code: shim.CodePrecondition, Field: "disks[0].path", Message: "/d: in use (fuser -v /d names it): QEMU ended", Parts: said,
		}},
		"an older shim's": {Saying(&shim.Error{Field: "vmm", Message: "no"}, errors.New("QEMU ended")), shim.Error{
			Field: "vmm", Message: "no: QEMU ended", Parts: []contract.Fault{{Field: "vmm", Text: "no: QEMU ended"}},
		}},
		"a sentence": {Of(errors.New("no")), shim.Error{Code: shim.CodeInternal, Message: "no", Parts: []contract.Fault{{Text: "no"}}}},
	} {
		if !reflect.DeepEqual(*c.got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, *c.got, c.want)
		}
	}
}
