package vm

import (
	"slices"
	"testing"

	"github.com/vmlet/vmlet/agent/vm/vmtest"
)

// TestGuestTime: a guest that has stood still is told the time once it runs, and not before.
func TestGuestTime(t *testing.T) {
	w, a := withRunning(t)
	told := func() bool { return slices.Contains(w.Taken(), "guest time") }
	if _, err := a.Pause(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	if told() {
		t.Error("it is told while it stands still")
	}
	if _, err := a.Resume(t.Context(), "web", false); err != nil {
		t.Fatal(err)
	}
	vmtest.Eventually(t, "it is told the time", told)
}
