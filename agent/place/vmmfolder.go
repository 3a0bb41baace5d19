package place

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/vmlet/vmlet/internal/untree"
	"github.com/vmlet/vmlet/shim"
)

// folderPatience bounds one try to remove a VMM's folder. Each try leaves less of it.
const folderPatience = 10 * time.Second

// removeVMMFolder removes a VMM's own folder, in its VM's state folder: it may have
// filled it with anything, and something that was not ended may go on filling it.
func removeVMMFolder(ctx context.Context, stateDir string) error {
	state, err := os.OpenRoot(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer state.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, folderPatience, fmt.Errorf("its removal has taken %v: try again", folderPatience))
	defer cancel()
	return untree.RemoveAll(ctx, state, shim.VMMFolderName)
}
