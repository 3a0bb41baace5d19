package vm

import (
	"encoding/json"
	"log/slog"
	"testing"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// FuzzNotes: so are the notes of devices that have come and gone.
func FuzzNotes(f *testing.F) {
	f.Add([]byte(`{"detached":"root"}`))
	f.Add([]byte(`{"attached":{"disk":{"name":"a"}},"complete":{"disk":{"name":"a","path":"/a"}}}`))
	f.Add([]byte(`{"attached":{"network":{"name":"a"}},"complete":{"disk":{"name":"a"}}}`))
	f.Add([]byte(`{"attached":{"disk":null},"complete":{"disk":null}}`))
	f.Fuzz(func(t *testing.T, note []byte) {
		vm := &nodev1.VirtualMachine{
			Spec:   &specv1.VirtualMachineSpec{Disks: []*specv1.Disk{{Name: "root", Path: "/root"}}},
			Status: &nodev1.VirtualMachineStatus{EffectiveSpec: &specv1.VirtualMachineSpec{Disks: []*specv1.Disk{{Name: "root", Path: "/root"}}}},
		}
		replay(vm, []json.RawMessage{note, note}, slog.New(slog.DiscardHandler))
		for _, s := range []*specv1.VirtualMachineSpec{vm.Spec, vm.Status.EffectiveSpec} {
			if n := len(s.GetDisks()) + len(s.GetNetworks()); n > 2 {
				t.Errorf("%d devices after one note, twice", n)
			}
		}
	})
}
