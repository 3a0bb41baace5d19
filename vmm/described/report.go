package described

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/vmm"
)

// Bounds on a report: it is an annotation of a Node, which has 256 KiB for all of them.
const (
	MaxReport  = 24 << 10
	maxVMMs    = 16
	maxReasons = 16
	maxReason  = 512
)

// Report is what the VMMs in the image of a virtualisation stack said on one node.
type Report struct {
	// Profile and Image are whose.
	Profile string  `json:"profile"`
	Image   string  `json:"image"`
	VMMs    []Found `json:"vmms,omitempty"`
	// Error is why none of them was asked.
	Error string `json:"error,omitempty"`
}

// Found is a VMM in the image.
type Found struct {
	// VMM is described by its driver; of vmlet's own the name and the version alone are here.
	VMM VMM `json:"vmm"`
	// Driver: it is not vmlet's own.
	Driver bool `json:"driver,omitempty"`
	// Error is why it can't be used on the node; empty: it can.
	Error string `json:"error,omitempty"`
	// Hypervisors are those of the node by their names, with why it runs no guests under one; empty: it does.
	Hypervisors map[string]string `json:"hypervisors,omitempty"`
}

// Works says whether it runs guests under some hypervisor of the node.
func (f Found) Works() bool {
	if f.Error != "" {
		return false
	}
	for _, why := range f.Hypervisors {
		if why == "" {
			return true
		}
	}
	return false
}

// Why is why it does not work, for people.
func (f Found) Why() string {
	if f.Error != "" {
		return f.VMM.ID + ": " + f.Error
	}
	for _, name := range slices.Sorted(maps.Keys(f.Hypervisors)) {
		if why := f.Hypervisors[name]; why != "" {
			return f.VMM.ID + " under " + name + ": " + why
		}
	}
	return f.VMM.ID + ": no hypervisor of the node was tried"
}

// Encode writes a report. What is too long is left out, and Error says so.
func (r Report) Encode() string {
	text, err := json.Marshal(r)
	if err != nil || len(text) > MaxReport {
		text, _ = json.Marshal(Report{Profile: r.Profile, Image: r.Image, Error: fmt.Sprintf("what its VMMs say of themselves has more than %d bytes", MaxReport)})
	}
	return string(text)
}

// Decode reads a report, and refuses one that no agent has written.
func Decode(text string) (Report, error) {
	if len(text) > MaxReport {
		return Report{}, fmt.Errorf("it has %d bytes, at most %d are read", len(text), MaxReport)
	}
	var r Report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Report{}, err
	}
	if len(r.VMMs) > maxVMMs {
		return Report{}, fmt.Errorf("it has %d VMMs, at most %d are read", len(r.VMMs), maxVMMs)
	}
	for i := range r.VMMs {
		if _, err := vmm.NewRegistry(r.VMMs[i].VMM); err != nil {
			return Report{}, err
		}
		if len(r.VMMs[i].Hypervisors) > maxReasons {
			return Report{}, errors.New("it has too many hypervisors")
		}
		r.VMMs[i].Error = clip(r.VMMs[i].Error)
		for name, why := range r.VMMs[i].Hypervisors {
			r.VMMs[i].Hypervisors[name] = clip(why)
		}
	}
	r.Error = clip(r.Error)
	return r, nil
}

func clip(s string) string {
	if len(s) > maxReason {
		return strings.ToValidUTF8(s[:maxReason], "")
	}
	return s
}
