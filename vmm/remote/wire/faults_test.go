package wire_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/vmm/remote/wire"
)

// TestFaults: all parts of a fault but another VM pass the protocol, bounded.
func TestFaults(t *testing.T) {
	all := []contract.Fault{{Reason: "R", Field: "cpu.model", Object: "/d", Text: "no memory.size", UseVMM: "qemu", Advice: "look", Fields: []string{"memory.size"}}}
	for i, f := range wire.FaultsOf(all) {
		if got := f.Part(); !reflect.DeepEqual(got, all[i]) {
			t.Errorf("%+v, want %+v", got, all[i])
		}
	}
	if got := (wire.Fault{Message: strings.Repeat("x", 1<<20)}).Part(); len(got.Text) > 4096 {
		t.Errorf("a text of %d bytes", len(got.Text))
	}
}
