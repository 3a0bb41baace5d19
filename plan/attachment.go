package plan

import "encoding/json"

// Attachment says how a VMM that runs is given one more device.
type Attachment struct {
	// Device is the id by which the shim knows it, as its Detachment has it: the
	// VMM's own.
	Device string `json:"device"`
	// Slot that the planner has given it; see the specification's field.
	Slot uint32 `json:"slot"`
	// Files are opened as a plan's are; Index counts those that come with the request.
	Files []File `json:"files,omitempty"`
	// Instructions are for the driver, in its own form. They name Files by their
	// indexes.
	Instructions json.RawMessage `json:"instructions"`
}

// Detachment says how a device is taken from a VMM that runs.
type Detachment struct {
	Device string `json:"device"`
	// DiskName of a disk, as File.DiskName or PartOf; empty: it is none.
	DiskName     string          `json:"diskName,omitempty"`
	Instructions json.RawMessage `json:"instructions"`
}
