package probe

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
	"golang.org/x/sync/semaphore"
)

// Tell returns the program's answer in the form that Told takes.
func (p *Program) Tell(info vmm.Info) (json.RawMessage, error) {
	details, ok := cloudhypervisor.DetailsOf(info)
	if !ok {
		return nil, fmt.Errorf("the information on %s is of type %T, not %s's", info.Binary, info.Details, wire.Name)
	}
	return json.Marshal(answer{Binary: info.Binary, Version: info.Version, Details: *details})
}

// Bounds on what is taken of a program that was asked elsewhere.
const (
	maxToldPath = 4096 // bytes: PATH_MAX (limits.h)
	maxToldText = 1 << 10
	// maxToldReason is room for the causes that a VMM gives.
	maxToldReason = 8 << 10
	maxToldWords  = 64 // of each list
)

// Told returns a cloud-hypervisor that was asked elsewhere, in a pod: its Info is what
// Tell gave there, and nothing is run here. That it was said doesn't make it true:
// anyone who carries out a plan that is made of it does so with the pod's rights.
func (p *Program) Told(said json.RawMessage, room *semaphore.Weighted) (vmm.VMM, error) {
	var a answer
	err := json.Unmarshal(said, &a)
	if err == nil {
		err = a.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s's description of itself: %w", wire.Name, err)
	}
	config := p.config
	config.Binary = a.Binary
	other := New(config)
	other.told, other.room = &a, room
	return other, nil
}

// check bounds what goes into plans and messages.
func (a *answer) check() error {
	d := &a.Details
	for _, list := range []struct {
		name  string
		words []string
		bytes int
	}{
		{"version", []string{a.Version}, maxToldText}, {"binary", []string{a.Binary}, maxToldPath},
		{"details.arch", []string{d.Arch}, maxToldText}, {"details.noSave", []string{d.NoSave}, maxToldReason},
		{"details.features", d.Features, maxToldText},
		{"details.devices", d.Devices, maxToldText}, {"details.built", d.Built, maxToldText},
		{"details.firmware", []string{d.Firmware}, maxToldPath}, {"details.firmwareFiles", d.FirmwareFiles, maxToldPath},
		{"details.accelerators", reasons(d.Accelerators), maxToldReason},
	} {
		if len(list.words) > maxToldWords {
			return fmt.Errorf("%s: %d of them: at most %d are taken", list.name, len(list.words), maxToldWords)
		}
		for _, word := range list.words {
			if len(word) > list.bytes {
				return fmt.Errorf("%s: %.80q... has more than %d bytes", list.name, word, list.bytes)
			}
		}
	}
	for name, path := range map[string]string{"binary": a.Binary, "details.firmware": d.Firmware} {
		if !filepath.IsAbs(path) && (path != "" || name == "binary") {
			return fmt.Errorf("%s: %.80q is not an absolute path", name, path)
		}
	}
	return nil
}

// reasons are the words of a map, both sides.
func reasons(m map[string]string) []string {
	var out []string
	for name, reason := range m {
		out = append(out, name, reason)
	}
	return out
}
