package place

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vmlet/vmlet/internal/atomicfile"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
)

// grantedName is the file in a VM's state folder that says what the VMM's user was
// given access to: access lists of files outlive a reboot, as run folders don't.
const grantedName = "granted.json"

// granted is what a run's shim gives its VMM's user, and takes back, unless it is killed.
type granted struct {
	UID   uint32        `json:"uid"`
	Files []grantedFile `json:"files"`
}

// grantedFile is a file with an access list.
type grantedFile struct {
	Path string `json:"path"`
}

// grantedFiles are those that the VMM's user is given access to.
func grantedFiles(p *plan.Plan) []grantedFile {
	var out []grantedFile
	for _, f := range p.Files {
		switch {
		case f.Kind != plan.FileSocket && !f.Granted:
		case f.Kind == plan.FileMemory && p.Restore != nil:
			out = append(out, grantedFile{filepath.Join(p.Restore.Directory, memory.MemoryName)})
		case f.Path != "":
			out = append(out, grantedFile{f.Path})
		}
	}
	return out
}

// noteGranted writes down what is going to be given, before it is.
func (h OnNode) noteGranted(c *Choice) error {
	files := grantedFiles(c.Plan)
	if len(files) == 0 {
		return nil
	}
	return h.writeGranted(granted{c.Lease.UID, files})
}

func (h OnNode) writeGranted(g granted) error {
	content, err := json.Marshal(g)
	if err != nil {
		return err
	}
	return atomicfile.ReplaceDurably(filepath.Join(h.StateDir(), grantedName), content, 0o600)
}

func (h OnNode) readGranted() (granted, error) {
	path := filepath.Join(h.StateDir(), grantedName)
	var g granted
	content, err := os.ReadFile(path)
	if err != nil {
		return g, err
	}
	if err := json.Unmarshal(content, &g); err != nil {
		return g, fmt.Errorf("%s: %w", path, err)
	}
	return g, nil
}

// Granting adds to what noteGranted has written. It stays when the device goes: to take
// back what is not there any more is no error.
func (h OnNode) Granting(l *Lease, files []plan.File) error {
	more := grantedFiles(&plan.Plan{Files: files})
	if len(more) == 0 {
		return nil
	}
	g, err := h.readGranted()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	g.UID = l.UID
	before := len(g.Files)
	for _, file := range more {
		if !slices.Contains(g.Files, file) {
			g.Files = append(g.Files, file)
		}
	}
	if len(g.Files) == before {
		return nil
	}
	return h.writeGranted(g)
}

// revokePatience is how long a disk may take to change a file's access list.
const revokePatience = 5 * time.Second

// takeBackGranted takes back what a shim that was killed has left of that. It is called
// when the VMM is gone; that there is nothing is no error.
func (h OnNode) takeBackGranted() error {
	g, err := h.readGranted()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// What shims lock, too: all run folders are in it, and it is root's.
	lock := filepath.Dir(h.RunDir())
	var errs []error
	for _, file := range g.Files {
		what := fmt.Sprintf("taking back user %d's access to %s", g.UID, file.Path)
		errs = append(errs, waitFor(revokePatience, what, func() error { return h.Host.RevokeFile(file.Path, lock, g.UID) }))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.Remove(filepath.Join(h.StateDir(), grantedName))
}
