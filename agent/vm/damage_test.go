package vm

import (
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/grpc/codes"
)

// TestDamagedStandsStill: a guest whose image was found to be damaged goes on only for
// who says so; it can be killed.
func TestDamagedStandsStill(t *testing.T) {
	_, a := withRunning(t)
	m, err := a.Get(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	l := m.running()
	events := l.shim.(*vmtest.Shim).Sends
	for range cap(events) + 2 { // the first was taken up when the last is sent
		events <- shim.Event{Damaged: "chunk 7"}
	}
	a.wantState(t, "web", lifecycle.Paused)
	_, err = a.Resume(t.Context(), "web", false)
	vmtest.WantCode(t, "resume", err, codes.DataLoss)
	_, _, err = a.Stop(t.Context(), "web", nil)
	vmtest.WantCode(t, "stop", err, codes.DataLoss)
	a.wantState(t, "web", lifecycle.Paused)
	if _, err := a.Resume(t.Context(), "web", true); err != nil {
		t.Error(err)
	}
	a.wantState(t, "web", lifecycle.Running)
	if _, err := a.Kill(t.Context(), "web"); err != nil {
		t.Error(err)
	}
	a.wantState(t, "web", lifecycle.Stopped)
}

// TestDamageFoundAtResume: the shim has paused the guest, and the agent is told why only
// when it lets it go on, or just after.
func TestDamageFoundAtResume(t *testing.T) {
	for _, during := range []bool{true, false} {
		w, a := withRunning(t)
		m, err := a.Get(t.Context(), "web")
		if err != nil {
			t.Fatal(err)
		}
		l := m.running()
		tell := func() {
			l.shim.(*vmtest.Shim).Sends <- shim.Event{Damaged: "chunk 7"}
			vmtest.Eventually(t, "the damage is reported", func() bool { return l.damaged() != nil })
		}
		if _, err := a.Pause(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
		if during {
			w.Hooks["resumed"] = tell
		}
		_, err = a.Resume(t.Context(), "web", false)
		if during {
			vmtest.WantCode(t, "resume", err, codes.DataLoss)
		} else if tell(); err != nil {
			t.Fatal(err)
		}
		proc := w.Proc("web")
		vmtest.Eventually(t, "the guest stands still, and is said to", func() bool {
			proc.Mu.Lock()
			defer proc.Mu.Unlock()
			return proc.Paused && m.State() == lifecycle.Paused
		})
	}
}
