package place

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
)

// TestRemainsAreRemoved: what a shim has noted of a save that it didn't live to see
// through goes with the rest of its run; without a note there is nothing to do.
func TestRemainsAreRemoved(t *testing.T) {
	runDir, image := t.TempDir(), filepath.Join(t.TempDir(), "image")
	if err := removeRemains(runDir); err != nil {
		t.Error(err)
	}
	var noted []byte
	w, err := memory.Create(image, memory.Options{Note: func(r memory.Remains) (err error) { noted, err = json.Marshal(r); return err }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.StateFile(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(runDir, shim.SavingName), noted, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := removeRemains(runDir); err == nil {
		t.Error("a save that is under way was removed")
	}
	left := filepath.Join(filepath.Dir(image), "left")
	if err := os.Rename(image, left); err != nil { // out of reach of the Abort
		t.Fatal(err)
	}
	// The writer's process ends: its lock goes, its files stay.
	state, err := os.ReadFile(filepath.Join(left, memory.StateName))
	if err != nil || len(state) > 0 {
		t.Fatal(state, err)
	}
	keep := filepath.Join(left, memory.StateName+"-kept")
	if err := os.Link(filepath.Join(left, memory.StateName), keep); err != nil {
		t.Fatal(err)
	}
	_ = w.Abort() // the folder is another by its name
	if err := os.Rename(keep, filepath.Join(left, memory.StateName)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(left, image); err != nil {
		t.Fatal(err)
	}
	if err := removeRemains(runDir); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(image); !os.IsNotExist(err) {
		t.Errorf("left: %v", err)
	}
}
