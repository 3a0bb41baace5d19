package vm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/vmm"
)

// hasAgent is a guest with one.
func hasAgent(w *world) {
	proc := w.Proc("web")
	proc.Mu.Lock()
	proc.Guest = &vmm.Guest{}
	proc.Mu.Unlock()
}

func TestSuspend(t *testing.T) {
	w, a := withRunning(t)
	hasAgent(w)
	if _, err := a.Suspend(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	m, err := a.Get(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	vmtest.Eventually(t, "it has ended", func() bool { return m.State() == lifecycle.Stopped })
	if s := m.Snapshot().GetStatus(); s.GetEndReason() != nodev1.EndReason_END_REASON_SUSPENDED || !strings.Contains(s.GetMessage(), "suspended itself to disk") {
		t.Errorf("it ended by %v: %s", s.GetEndReason(), s.GetMessage())
	}
}

// TestSuspendRefused: the caller learns what is missing, and the guest goes on.
func TestSuspendRefused(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*testing.T, *world, *testAgent)
		code    codes.Code
		want    string
	}{
		"no agent": {func(*testing.T, *world, *testAgent) {}, codes.FailedPrecondition, "no guest agent answers"},
		"the guest can't": {func(_ *testing.T, w *world, _ *testAgent) {
			hasAgent(w)
			w.FailStep("suspend", fmt.Errorf("%w: no swap", vmm.ErrGuestCannot))
		}, codes.FailedPrecondition, "no swap"},
		"an accident": {func(_ *testing.T, w *world, _ *testAgent) {
			hasAgent(w)
			w.FailStep("suspend", errors.New("cut off"))
		}, codes.Unavailable, "cut off"},
		"its machine can't": {func(t *testing.T, w *world, a *testAgent) {
			hasAgent(w)
			m, err := a.Get(t.Context(), "web")
			if err != nil {
				t.Fatal(err)
			}
			err = m.Change(func(vm *nodev1.VirtualMachine) {
				vm.Status.EffectiveSpec = proto.CloneOf(vm.Status.EffectiveSpec)
				vm.Status.EffectiveSpec.Features = &specv1.Features{Acpi: proto.Bool(false)}
			})
			if err != nil {
				t.Fatal(err)
			}
		}, codes.FailedPrecondition, "features.acpi"},
		"paused": {func(t *testing.T, w *world, a *testAgent) {
			hasAgent(w)
			if _, err := a.Pause(t.Context(), "web"); err != nil {
				t.Fatal(err)
			}
		}, codes.FailedPrecondition, "is paused"},
	} {
		t.Run(name, func(t *testing.T) {
			w, a := withRunning(t)
			test.prepare(t, w, a)
			_, err := a.Suspend(t.Context(), "web")
			wantStatus(t, "suspend", err, test.code)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if m, _ := a.Get(t.Context(), "web"); !lifecycle.Live(m.State()) {
				t.Error("the guest has ended")
			}
		})
	}
}
