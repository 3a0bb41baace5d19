package place

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/host"
	"github.com/vmlet/vmlet/internal/atomicfile"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/grpc/codes"
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
	note, err := h.Host.NoteTap(device)
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
	return atomicfile.ReplaceDurably(filepath.Join(h.RunDir(), tapsName), content, 0o600)
}

func (h OnNode) readTaps() (noted []host.TapNote, err error) {
	path := filepath.Join(h.RunDir(), tapsName)
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
		errs = append(errs, h.Host.RestoreTap(note))
	}
	return errors.Join(errs...)
}

// OpenTap opens a network's tap for a run; field is the network's in the specification.
// The kernel removes a tap that was made when nobody has it open any more.
func (h OnNode) OpenTap(n *specv1.NetworkInterface, l *Lease, field string) (*os.File, error) {
	tap := n.GetTap()
	if err := h.noteTap(tap.GetDevice()); err != nil {
		return nil, err
	}
	f, name, err := h.Host.OpenTap(host.TapRequest{Device: tap.GetDevice(), Bridge: tap.GetBridge(), MAC: n.GetMac(), Owner: l.RunID})
	if err != nil {
		return nil, fault.Errorf(codes.FailedPrecondition, "%s.tap: %w", field, err)
	}
	h.Log.Debug("tap", "vm", h.name, "network", n.GetName(), "device", name)
	return f, nil
}
