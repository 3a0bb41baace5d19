package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/vmlet/vmlet/agent/host"
	"github.com/vmlet/vmlet/internal/atomicfile"
)

// tapsName is the file in a VM's run folder that says how the administrator's taps were
// before the VM had them. A reboot removes both.
const tapsName = "taps.json"

// noteTap writes down how a tap is that the VMM is about to get. One that is not there is
// for who opens it to report; one without a name is made, and goes with its run.
func (h OnNode) noteTap(device string) error {
	if device == "" {
		return nil
	}
	noted, err := h.readTaps()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(noted, func(n host.TapNote) bool { return n.Device == device }) {
		return nil // the VMM has had it since
	}
	note, err := h.manager.host.NoteTap(device)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	content, err := json.Marshal(append(noted, note))
	if err != nil {
		return err
	}
	return atomicfile.ReplaceDurably(filepath.Join(h.runDir(), tapsName), content, 0o600)
}

func (h OnNode) readTaps() (noted []host.TapNote, err error) {
	path := filepath.Join(h.runDir(), tapsName)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(content, &noted); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return noted, nil
}

// restoreTaps has the taps be again as they were noted.
func (h OnNode) restoreTaps() error {
	noted, err := h.readTaps()
	errs := []error{err}
	for _, note := range noted {
		errs = append(errs, h.manager.host.RestoreTap(note))
	}
	return errors.Join(errs...)
}
