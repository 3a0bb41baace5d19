package shim

import "github.com/vmlet/vmlet/memory"

// SavingName is the file in a VM's run folder in which its shim has a memory.Remains for
// as long as a save is under way.
const SavingName = "saving.json"

// ReadRemains reads what a save has made that the shim did not live to see through. The
// error wraps fs.ErrNotExist if there was none.
func ReadRemains(runDir string) (*memory.Remains, error) {
	return readJSON[memory.Remains](runDir, SavingName)
}
