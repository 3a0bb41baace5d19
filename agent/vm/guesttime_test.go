package vm

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
)

// TestGuestTimeOfRestored: once it runs, which one that is restored paused does not.
func TestGuestTimeOfRestored(t *testing.T) {
	for _, paused := range []bool{false, true} {
		w, a := withRunning(t)
		dir := filepath.Join(t.TempDir(), "image")
		if _, _, err := a.Save(t.Context(), "web", place.SaveOptions{Directory: dir}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Restore(t.Context(), RestoreOptions{Directory: dir, Paused: paused}, nil); err != nil {
			t.Fatal(err)
		}
		a.end() // which waits for what it does in the background
		if told := slices.Contains(w.Taken(), "guest time"); told == paused {
			t.Errorf("restored, paused %t: it is told the time: %t", paused, told)
		}
	}
}

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
