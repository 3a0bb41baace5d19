package vm

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/vmlet/vmlet/agent/fault"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
)

func wantStatus(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(fault.ToStatus(err)); got != want {
		t.Errorf("%s: %v (%v), want %v", what, got, err, want)
	}
}

// TestFreezeIsNoted: the record says that a guest is frozen, and the shim for how long.
func TestFreezeIsNoted(t *testing.T) {
	w, a := withRunning(t)
	proc := w.Proc("web")
	frozen := func() time.Duration {
		proc.Mu.Lock()
		defer proc.Mu.Unlock()
		return proc.Frozen
	}
	if err := a.Freeze(t.Context(), "web", 0); err != nil {
		t.Fatal(err)
	}
	a.knows(t, &nodev1.GuestStatus{FsFreezeStatus: "frozen"})
	if got := frozen(); got != freezeDefault {
		t.Errorf("frozen for %v, want %v", got, freezeDefault)
	}
	if err := a.Thaw(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	a.knows(t, &nodev1.GuestStatus{})
	wantStatus(t, "less than no time", a.Freeze(t.Context(), "web", -1), codes.InvalidArgument)
	w.FailStep("freeze", &shim.Error{Code: shim.CodeUnavailable, Message: "no guest agent answers"})
	wantStatus(t, "no guest agent", a.Freeze(t.Context(), "web", time.Second), codes.Unavailable)
	a.knows(t, &nodev1.GuestStatus{})
}

// TestReboot: the power button is pressed where the guest would hear it, and not otherwise.
func TestReboot(t *testing.T) {
	w, a := withRunning(t)
	proc := w.Proc("web")
	button := func() bool {
		proc.Mu.Lock()
		defer proc.Mu.Unlock()
		return proc.Button
	}
	if _, err := a.Reboot(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	if !button() {
		t.Error("the power button is not to be pressed though the guest has ACPI")
	}
	m, err := a.Get(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	off := func(vm *nodev1.VirtualMachine) {
		vm.Status.EffectiveSpec = proto.CloneOf(vm.Status.EffectiveSpec)
		vm.Status.EffectiveSpec.Features = &specv1.Features{Acpi: proto.Bool(false)}
	}
	if err := m.Change(off); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Reboot(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	if button() {
		t.Error("the power button is to be pressed though the guest has no ACPI")
	}
	w.FailStep("reboot", &shim.Error{Code: shim.CodePrecondition, Message: "neither"})
	_, err = a.Reboot(t.Context(), "web")
	wantStatus(t, "neither agent nor ACPI", err, codes.FailedPrecondition)
	if _, err := a.Pause(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	_, err = a.Reboot(t.Context(), "web")
	wantStatus(t, "a paused guest", err, codes.FailedPrecondition)
}

// TestNoDisplay: a VM without a video device has none, whatever its shim would say.
func TestNoDisplay(t *testing.T) {
	_, a := withRunning(t)
	_, err := a.Display(t.Context(), "web", false)
	wantStatus(t, "display", err, codes.FailedPrecondition)
	_, err = a.Screenshot(t.Context(), "web", false)
	wantStatus(t, "screenshot", err, codes.FailedPrecondition)
	_, err = a.Inspect(t.Context(), "web") // this VMM has no channel
	wantStatus(t, "guest", err, codes.FailedPrecondition)
}
