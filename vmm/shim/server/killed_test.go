package server

import (
	"errors"
	"testing"

	"github.com/vmlet/vmlet/vmm/plan"
	"github.com/vmlet/vmlet/vmm/shim"
)

// TestNothingBeginsWithAKilledVM: between the kill and the VMM's end a save would fail
// with whatever it was at, as if the VMM had crashed.
func TestNothingBeginsWithAKilledVM(t *testing.T) {
	s := &Server{vm: &vm{killed: true, machine: &fakeMachine{}, plan: &plan.Plan{VMM: "fake"}}}
	_, errSave := s.beginSave(&conn{s: s}, 1, &shim.Save{Directory: "/image"})
	_, _, _, errPlug := s.plugger(opAttach, nil)
	for name, err := range map[string]error{"save": errSave, "attach": errPlug} {
		var fault *shim.Error
		if !errors.As(err, &fault) || fault.Code != shim.CodePrecondition {
			t.Errorf("%s: %v, want a fault %s", name, err, shim.CodePrecondition)
		}
	}
	if s.op != nil {
		t.Error("an operation is under way")
	}
}
