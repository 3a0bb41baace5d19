package probe

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu"
	"golang.org/x/sync/semaphore"
)

// told is what a QEMU in another mount namespace says of itself.
type told struct {
	Binary string `json:"binary"`
	answer
}

// Tell returns the program's answer in the form that Told takes.
func (q *Program) Tell(info vmm.Info) (json.RawMessage, error) {
	details, ok := info.Details.(*qemu.Details)
	if !ok {
		return nil, fmt.Errorf("the information on %s is of type %T, not QEMU's", info.Binary, info.Details)
	}
	return json.Marshal(told{Binary: info.Binary, answer: answer{Version: info.Version, Details: *details}})
}

// Bounds, in bytes, on what is shown of a QEMU that was asked elsewhere.
const (
	maxToldPath    = 4096 // PATH_MAX (limits.h)
	maxToldVersion = 128
)

// Told returns a QEMU that was asked elsewhere, in a pod: its Info is what Tell
// gave there, and nothing is run here. That it was said doesn't make it true:
// anyone who carries out a plan that is made of it does so with the pod's rights.
func (q *Program) Told(said json.RawMessage, room *semaphore.Weighted) (vmm.VMM, error) {
	var t told
	if err := json.Unmarshal(said, &t); err != nil {
		return nil, fmt.Errorf("QEMU's description of itself: %w", err)
	}
	if !filepath.IsAbs(t.Binary) || len(t.Binary) > maxToldPath {
		return nil, fmt.Errorf("QEMU's description of itself: binary: %.80q is not an absolute path of at most %d bytes", t.Binary, maxToldPath)
	}
	if len(t.Version) > maxToldVersion {
		return nil, fmt.Errorf("QEMU's description of itself: version: %.80q... has more than %d bytes", t.Version, maxToldVersion)
	}
	config := q.config
	config.Binary, config.CacheFile = t.Binary, ""
	other := New(config)
	other.told, other.room = &t.answer, room
	return other, nil
}
