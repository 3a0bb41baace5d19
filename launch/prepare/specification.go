package prepare

import (
	"encoding/json"
	"fmt"

	"github.com/vmlet/vmlet/disk"
)

// result is what became of a disk, as the specification says it.
type result struct {
	Path         string    `json:"path"`
	Format       string    `json:"format"`
	BackingFiles []backing `json:"backingFiles,omitempty"`
	ReadOnly     bool      `json:"readOnly,omitempty"`
	Cache        string    `json:"cache,omitempty"`
	// buffered is a file of the disk whose filesystem has no direct I/O; empty: all have it.
	buffered string
}

type backing struct {
	Path   string      `json:"path"`
	Format disk.Format `json:"format"`
}

// specification is a VM's. This package understands only its disks: all else is
// carried as it is.
type specification struct {
	fields map[string]json.RawMessage
	disks  []map[string]json.RawMessage
}

const disksField = "disks"

func parse(text []byte) (*specification, error) {
	s := new(specification)
	if err := json.Unmarshal(text, &s.fields); err != nil {
		return nil, fmt.Errorf("the specification is not JSON, which it must be where disks are prepared: %w", err)
	}
	if disks := s.fields[disksField]; disks != nil {
		if err := json.Unmarshal(disks, &s.disks); err != nil {
			return nil, fmt.Errorf("the specification's disks: %w", err)
		}
	}
	return s, nil
}

func (s *specification) find(name string) (map[string]json.RawMessage, error) {
	for _, d := range s.disks {
		var its string
		if json.Unmarshal(d["name"], &its) == nil && its == name {
			return d, nil
		}
	}
	return nil, fmt.Errorf("volume %s: the preparation names it, and the specification has no such disk", name)
}

// path is what the specification says of a disk's, empty if nothing.
func (s *specification) path(name string) (path string, err error) {
	d, err := s.find(name)
	if err != nil || d["path"] == nil {
		return "", err
	}
	if err := json.Unmarshal(d["path"], &path); err != nil {
		return "", fmt.Errorf("volume %s: its path in the specification: %w", name, err)
	}
	return path, nil
}

func (s *specification) fill(name string, r result) error {
	d, err := s.find(name)
	if err != nil {
		return err
	}
	if onSATA(d) {
		// QEMU has no disk on this bus that is only read. What was made for this VM alone it
		// may as well write.
		r.ReadOnly = false
	}
	if r.Cache, err = cacheOf(d, r.buffered); err != nil {
		return fmt.Errorf("volume %s: %w", name, err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &d) // what the result doesn't have stays
}

// onSATA tells whether a disk, and no CD-ROM, is on that bus.
func onSATA(d map[string]json.RawMessage) bool {
	var bus, kind string
	_ = json.Unmarshal(d["bus"], &bus) // a fault of it is the agent's to report
	_ = json.Unmarshal(d["type"], &kind)
	return bus == "sata" && kind != "cdrom"
}

func (s *specification) text() ([]byte, error) {
	disks, err := json.Marshal(s.disks)
	if err != nil {
		return nil, err
	}
	if s.disks != nil {
		s.fields[disksField] = disks
	}
	return json.Marshal(s.fields)
}
