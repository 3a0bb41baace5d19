package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vmlet/vmlet/internal/atomicfile"
	"github.com/vmlet/vmlet/vmm/memory"
	"github.com/vmlet/vmlet/vmm/plan"
	"github.com/vmlet/vmlet/vmm/shim"
)

// grantedName is the file in a VM's state folder that says what the VMM's user was
// given access to: access lists of files outlive a reboot, as run folders don't.
const grantedName = "granted.json"

// granted is what a run's shim gives its VMM's user, and takes back, unless it is killed.
type granted struct {
	UID   uint32        `json:"uid"`
	Files []grantedFile `json:"files"`
}

// grantedFile is a file with an access list, and what is locked while that is changed.
type grantedFile struct {
	Path string `json:"path"`
	Lock string `json:"lock"`
}

// grantedFiles are those that the VMM's user is given access to.
func grantedFiles(p *plan.Plan) []grantedFile {
	var out []grantedFile
	for _, f := range p.Files {
		switch {
		case f.Kind != plan.FileSocket && !f.Granted:
		case f.Kind == plan.FileMemory && p.Restore != nil:
			dir := p.Restore.Directory
			out = append(out, grantedFile{filepath.Join(dir, memory.MemoryName), filepath.Join(dir, memory.ManifestName)})
		case f.Path != "":
			out = append(out, grantedFile{f.Path, filepath.Dir(f.Path)})
		}
	}
	return out
}

// noteGranted writes down what is going to be given, before it is.
func (h ownHome) noteGranted(c *choice) error {
	files := grantedFiles(c.plan)
	if len(files) == 0 {
		return nil
	}
	content, err := json.Marshal(granted{c.lease.UID, files})
	if err != nil {
		return err
	}
	return atomicfile.ReplaceDurably(filepath.Join(h.stateDir(), grantedName), content, 0o600)
}

// takeBackGranted takes back what a shim that was killed has left of that, and the
// VMM's folder. It is called when the VMM is gone; that there is nothing is no error.
func (h ownHome) takeBackGranted() error {
	path := filepath.Join(h.stateDir(), grantedName)
	errFolder := os.RemoveAll(filepath.Join(h.stateDir(), shim.VMMFolderName))
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return errFolder
	}
	if err != nil {
		return errors.Join(errFolder, err)
	}
	var g granted
	if err := json.Unmarshal(content, &g); err != nil {
		return errors.Join(errFolder, fmt.Errorf("%s: %w", path, err))
	}
	var errs []error
	for _, file := range g.Files {
		errs = append(errs, h.agent.host.RevokeFile(file.Path, file.Lock, g.UID))
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(errFolder, err)
	}
	return errors.Join(errFolder, os.Remove(path))
}
