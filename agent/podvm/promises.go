package podvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/atomicfile"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/types"
)

// promises are the pods whose VMs have ended, as the agent has promised, and those whose
// VM it is launching: no pod is both. The zero value is ready for use, and keeps nothing.
//
// What was promised is kept in a file: a kubelet may start the container of a pod again that
// nobody has deleted, after the agent was started again.
type promises struct {
	path string // of the file; empty: there is none

	mu sync.Mutex
	// ended are those that were promised, the oldest first, and tentative those not yet
	// promised.
	ended     []types.UID
	tentative map[types.UID]bool
	launching map[types.UID]int
}

const (
	// promisesName is the file in the agent's state folder.
	promisesName = "promises.json"
	// maxPromises bounds what is remembered: the last of them. A pod whose UID is forgotten after
	// so many others is long gone.
	maxPromises = 1 << 10
	// maxPromised bounds the file, in bytes: a UID has 36.
	maxPromised = 64 * maxPromises
)

// readPromises has those that an earlier agent has made.
func readPromises(folder string) (*promises, error) {
	p := &promises{path: filepath.Join(folder, promisesName)}
	f, err := os.Open(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err == nil {
		defer f.Close()
		err = json.NewDecoder(io.LimitReader(f, maxPromised)).Decode(&p.ended)
	}
	if err != nil {
		return nil, contract.Errorf("reading the promises that pods' VMs have ended: %s: %w: remove the file when all pods of the node's VMs are gone", contract.ObjectName(p.path), err)
	}
	return p, nil
}

// launch begins the launch of a pod's VM. done is to be called when that is over, and the VM,
// if it runs, in its manager's list.
func (p *promises) launch(pod types.UID) (done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tentative[pod] || slices.Contains(p.ended, pod) {
		return nil, fault.Errorf(codes.FailedPrecondition, "the agent has promised the cluster that no VM of pod %s runs any more: it starts none", pod)
	}
	if p.launching == nil {
		p.launching = make(map[types.UID]int)
	}
	p.launching[pod]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.launching[pod]--; p.launching[pod] == 0 {
			delete(p.launching, pod)
		}
	}, nil
}

// promise has no launch begin until forget, or after keep for good; it reports whether none is
// under way.
func (p *promises) promise(pod types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.launching[pod] > 0 {
		return false
	}
	if !slices.Contains(p.ended, pod) {
		if p.tentative == nil {
			p.tentative = make(map[types.UID]bool)
		}
		p.tentative[pod] = true
	}
	return true
}

// forget takes a promise back that was not kept: nobody has heard of it.
func (p *promises) forget(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tentative, pod)
}

// keep makes a promise hold for this agent and those that come after it; then others may learn it.
func (p *promises) keep(pod types.UID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.ended, pod) {
		return nil
	}
	if !p.tentative[pod] {
		return errors.New("another call has found that it may run")
	}
	delete(p.tentative, pod)
	ended := append(slices.Clone(p.ended[max(0, len(p.ended)+1-maxPromises):]), pod)
	if p.path != "" {
		content, err := json.Marshal(ended)
		if err == nil {
			err = atomicfile.ReplaceDurably(p.path, content, 0o600)
		}
		if err != nil {
			return err
		}
	}
	p.ended = ended
	return nil
}

// TakenUp is closed when the VMs of the pods that were there at the start have been taken up.
func (p *Runner) TakenUp() <-chan struct{} { return p.arrivals.done }

// ConfirmEnded promises that no VM of a pod runs on this node, and that none will be launched.
// It is FailedPrecondition if one runs, or may be about to, and Unavailable if that is unknown.
func (p *Runner) ConfirmEnded(ctx context.Context, pod types.UID) error {
	select {
	case <-p.arrivals.done:
	default:
		return fault.Errorf(codes.Unavailable, "the agent was started just now and has not looked into all pods yet: ask again")
	}
	// Looked at before the promise, so that a pod about which it can't be made is left
	// alone, and after it, as a shim may have come meanwhile.
	if err := p.quiet(ctx, pod); err != nil {
		return err
	}
	if !p.promises.promise(pod) {
		return fault.Errorf(codes.FailedPrecondition, "a VM of pod %s is being started", pod)
	}
	if err := p.quiet(ctx, pod); err != nil {
		p.promises.forget(pod)
		return err
	}
	if err := p.promises.keep(pod); err != nil {
		return fault.Errorf(codes.Unavailable, "keeping the promise that the VM of pod %s has ended: %w", pod, err)
	}
	return nil
}

// quiet is an error if a VM of a pod runs, or a process that may be one.
func (p *Runner) quiet(ctx context.Context, pod types.UID) error {
	for _, m := range p.manager.All() {
		h, is := m.Placement().(*placement)
		if s := m.State(); is && h.pod.UID == pod && lifecycle.Live(s) {
			return fault.Errorf(codes.FailedPrecondition, "%s is %s", contract.ThisVM(m.Name()), lifecycle.Name(s))
		}
	}
	process, err := p.pods.MayRunVM(ctx, pod)
	if err != nil {
		return fault.Errorf(codes.Unavailable, "which processes pod %s has: %w", pod, err)
	}
	if process != nil {
		return fault.Errorf(codes.FailedPrecondition, "process %d (%.16q) of pod %s runs in the container of its VM", process.PID, process.Name, pod)
	}
	return nil
}

// launchable refuses to start a VM for a pod that is being deleted.
func (h *placement) launchable() error {
	if h.pod.DeletionTimestamp != nil {
		return fmt.Errorf("pod %s/%s: %w", h.pod.Namespace, h.pod.Name, errDeleted)
	}
	return nil
}

// errDeleted: the pod was deleted before its VM was started.
var errDeleted = fault.Errorf(codes.FailedPrecondition, "it is being deleted: no VM is started in it any more")
