package place

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/vmlet/vmlet/shim"
)

// remainsPatience is how long a disk may take to let the remains of a save be removed.
const remainsPatience = 5 * time.Second

// removeRemains removes what a save has written whose shim was killed, as it has noted in
// the run folder: it is as secret as an image, and no other save goes there.
func removeRemains(runDir string) error {
	remains, err := shim.ReadRemains(runDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := waitFor(remainsPatience, "their removal", remains.Remove); err != nil {
		return fmt.Errorf("remove by hand what a save has left in %s: %w", remains.Directory, err)
	}
	return nil
}
