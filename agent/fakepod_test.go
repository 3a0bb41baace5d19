package agent

import (
	"context"
	"encoding/json"

	"github.com/vmlet/vmlet/shim"
)

// fakePod is what a fakeProc says of its place in a pod; guarded by its mutex.
type fakePod struct {
	described shim.Described
	deaf      bool            // to the question what it is for
	none      bool            // it says that it is in no pod
	launching bool            // it says that an earlier agent's launch is under way
	keep      json.RawMessage // what it says to have kept; nil: what it was given
	runDir    string
	stateDir  string
	runID     string

	launched shim.Launch
	refusal  string
}

func (p *fakePod) welcome(w *shim.Welcome) {
	if !p.none {
		w.Pod = &shim.Pod{RunDir: p.runDir, RunID: p.runID, StateDir: p.stateDir}
	}
	w.Launching, w.Keep = p.launching, p.launched.Keep
	if p.keep != nil {
		w.Keep = p.keep
	}
}

func (p *fakePod) describe(ctx context.Context) (*shim.Described, error) {
	if p.deaf {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	d := p.described
	return &d, nil
}
