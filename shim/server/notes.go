package server

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/vmlet/vmlet/shim/server/undo"
)

// plugs is what has become of a VMM's devices since its launch, guarded by session.mu.
type plugs struct {
	// attached has what takes back what was made for each device.
	attached map[string]*undo.Stack
	// leaving are those that the guest has not let go when it was asked.
	leaving map[string]context.CancelFunc
	notes   []note
}

func newPlugs() plugs {
	return plugs{attached: make(map[string]*undo.Stack), leaving: make(map[string]context.CancelFunc)}
}

// note is what an agent wants those after it to know of a device.
type note struct {
	device string
	text   json.RawMessage
}

// put replaces what was said of the device.
func (p *plugs) put(device string, text json.RawMessage) {
	p.notes = slices.DeleteFunc(p.notes, func(n note) bool { return n.device == device })
	if text != nil {
		p.notes = append(p.notes, note{device, text})
	}
}

func (p *plugs) texts() []json.RawMessage {
	var all []json.RawMessage
	for _, n := range p.notes {
		all = append(all, n.text)
	}
	return all
}
