package podvm

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/vmlet/vmlet/internal/fingerprint"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
)

// ownVMMs is what the agent's own VMMs say of themselves. A pod whose image has the same files, which is
// mostly the agent's own image, need not run its VMM to find that out: that takes longer than a VM's start.
//
// What another pod has said is never taken in its place: it may have lied.
type ownVMMs struct {
	// compare is what such a pod is known by, to itself; without files: there is nothing to compare.
	compare shim.Describe
	said    []vmm.Saying
}

// ownBelief is how long what they say is not asked again. Files and words go together: a pod whose files
// were changed meanwhile finds that they are others.
const ownBelief = 10 * time.Second

// recentVMMs is the last answer of ownVMMs.
type recentVMMs struct {
	mu  sync.Mutex
	own ownVMMs
	at  time.Time
}

// ownVMMs returns what they say now, or did a moment ago.
func (p *Runner) ownVMMs(ctx context.Context) ownVMMs {
	r := &p.recent
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.own.compare.Files == nil || now.Sub(r.at) > ownBelief {
		r.own, r.at = p.askVMMs(ctx), now
	}
	return r.own
}

// askVMMs runs them only if that was not done before, or not as the machine is now.
func (p *Runner) askVMMs(ctx context.Context) ownVMMs {
	var own ownVMMs
	for _, v := range p.node.VMMs {
		t, tells := v.(vmm.Teller)
		if !tells {
			continue // pods can't have it
		}
		said, files := ownVMM(ctx, t)
		if files == nil {
			return ownVMMs{}
		}
		own.said = append(own.said, said)
		own.compare.Files = append(own.compare.Files, files...)
	}
	sum, err := fingerprint.Content(own.compare.Files)
	if err != nil {
		return ownVMMs{}
	}
	own.compare.Sum = sum
	return own
}

// ownVMM returns no files if it might say something else in a pod.
func ownVMM(ctx context.Context, v vmm.Teller) (said vmm.Saying, files []string) {
	said.Name = v.Name()
	info, err := v.Info(ctx)
	if filed, is := v.(interface{ Files() []string }); is && errors.Is(err, fs.ErrNotExist) {
		said.Error = err.Error()
		return said, filed.Files()
	}
	portable, is := v.(vmm.Portable)
	if err != nil || info.Passing || !is {
		return said, nil
	}
	if said.Said, err = portable.Tell(info); err != nil {
		return said, nil
	}
	return said, portable.AllFiles(info)
}
