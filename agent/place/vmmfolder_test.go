package place

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/shim"
)

// TestFolderIsLeftInTime: a VMM's folder that takes too long to remove is left for a later
// try.
func TestFolderIsLeftInTime(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, shim.VMMFolderName)
	if err := os.MkdirAll(filepath.Join(folder, "more"), 0o700); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := removeVMMFolder(over, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("when the time is over: %v", err)
	}
	if err := removeVMMFolder(t.Context(), dir); err != nil {
		t.Errorf("later: %v", err)
	}
	if _, err := os.Lstat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is there: %v", err)
	}
}
