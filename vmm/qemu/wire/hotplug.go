package wire

import "encoding/json"

// Start is carried out once QEMU answers, before the guest runs.
type Start struct {
	Commands []Command `json:"commands"`
}

// Attach is carried out step by step. After an error what was done is undone, the last
// first.
type Attach struct {
	Steps []Step `json:"steps"`
}

// Step is one command of QMP.
type Step struct {
	Command
	// File is the index of the attachment's file that goes with it; nil: none.
	File *int `json:"file,omitempty"`
	// Opens is the index of the file that is its argument "filename", as a set of
	// descriptors that is made before it; nil: none. QEMU numbers the sets: until it
	// has closed those of one that was removed, it would open them still.
	Opens *int `json:"opens,omitempty"`
	// Undo takes it back.
	Undo Command `json:"undo"`
}

// Command is one of QEMU's, by its name in qapi/*.json.
type Command struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// Detach is everything that QEMU has of a device.
type Detach struct {
	// Device is the id of what the guest sees (device_del).
	Device string `json:"device"`
	// Nodes of the block layer, each before those that it refers to.
	Nodes []string `json:"nodes,omitempty"`
	// Netdev is a network's backend; empty: it has none.
	Netdev string `json:"netdev,omitempty"`
}
