package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/vmlet/vmlet/internal/untree"
	"github.com/vmlet/vmlet/vmm/shim"
)

// removeVMMFolder removes a VMM's own folder, in its VM's state folder: it may have
// filled it with anything.
func removeVMMFolder(stateDir string) error {
	state, err := os.OpenRoot(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer state.Close()
	return untree.RemoveAll(context.Background(), state, shim.VMMFolderName)
}
