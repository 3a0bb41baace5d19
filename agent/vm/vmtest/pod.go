package vmtest

import (
	"context"
	"encoding/json"
	"net"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/shim"
)

// Pod is what a Proc says of its place in a pod; guarded by its mutex.
type Pod struct {
	Described shim.Described
	Asked     []shim.Describe // what it was asked by
	Attached  []byte          // the manifest of the image in the volume that is attached
	Deaf      bool            // to the question what it is for
	None      bool            // it says that it is in no pod
	Launching bool            // it says that an earlier agent's launch is under way
	Keep      json.RawMessage // what it says to have kept; nil: what it was given
	// Driver is the driver of a VMM in its image, which serves a connection; nil: there is none.
	Driver   func(name string, conn net.Conn) error
	RunDir   string
	StateDir string
	RunID    string

	Launched shim.Launch
	Refusal  string
	Ending   contract.Ending
}

func (p *Pod) welcome(w *shim.Welcome) {
	if !p.None {
		w.Pod = &shim.Pod{RunDir: p.RunDir, RunID: p.RunID, StateDir: p.StateDir}
	}
	w.Launching, w.Keep = p.Launching, p.Launched.Keep
	if p.Keep != nil {
		w.Keep = p.Keep
	}
}

func (p *Pod) describe(ctx context.Context) (*shim.Described, error) {
	if p.Deaf {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	d := p.Described
	return &d, nil
}
