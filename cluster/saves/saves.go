// Package saves calls nodes' agents to save VMs, or to have guests suspend themselves: calls that
// take minutes, and that no reconciler waits for. It bounds how many VMs of a node are saved at
// once, and sets aside those that hang: no VM waits for another's storage. What is known of a call is kept in memory alone: an agent undoes the save of a caller that
// goes away, so that anyone who leads next begins again. The package must not know
// VirtualMachineInstances nor the API server. Start reading at Saves.
package saves

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vmlet/vmlet/cluster/turns"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

const (
	// progressPatience is how long others wait for a save that writes nothing.
	progressPatience = time.Minute
	// longest is how long others wait for a save that goes on writing, by the word of its shim.
	longest = time.Hour
	// aside is how many saves of a namespace on a node may be under way that nobody waits for: as
	// long as there are as many, its further VMs wait for them.
	aside = 4
)

// Request is what an agent is asked for.
type Request struct {
	// Pod is the name of the VM's pod, in the VM's namespace, and UID its UID.
	Pod string
	UID types.UID
	// Node is the pod's.
	Node string
	// Directory is what SaveVM calls directory; empty: the guest is to suspend itself to disk.
	Directory string
	// Attachment is the UID of the pod that has the volume; empty: the VM's own pod has it.
	Attachment types.UID
	// Watched are the claims of the VM's disks that have to be watched from the save on, and Instance
	// is for anyone who watches them.
	Watched  []string
	Instance types.UID
	// Urgent: the node ends the VM's pod, and no other save is waited for.
	Urgent bool
}

// suspends: the guest saves itself, to its own disk. That takes nothing of the node's.
func (r Request) suspends() bool { return r.Directory == "" }

// State is how far a call is.
type State int

// The states of a call, in their order.
const (
	Queued State = iota
	Running
	Ended
)

// Call is what is known of a VM's call.
type Call struct {
	Request
	State State
	// Ahead is how many saves on the node are under way or waiting before a call that is queued, and
	// Barred: it waits for those of its own namespace that were set aside.
	Ahead  int
	Barred bool
	// Begun is when it began, and Aside: it writes nothing or takes long, and others no longer wait
	// for it.
	Begun time.Time
	Aside bool
	// Cancelled: somebody has cancelled the call while it was under way.
	Cancelled bool
	// Err is why it failed, and Result what the agent said of a save, when it has ended.
	Err    error
	Result *nodev1.SaveResult
	// Unsure: the connection ended before the agent said how the save had, and it could not be
	// asked. The guest may have been saved.
	Unsure bool
	// At is when it ended, and Failures how many calls for that pod have failed in a row.
	At       time.Time
	Failures int
}

// Active: it is queued or under way.
func (c *Call) Active() bool { return c.State != Ended }

// Saves are the calls under way, and those that have ended and were not forgotten: one for each
// VM. Its methods may be called concurrently.
type Saves struct {
	options Options
	changes changes
	calls   sync.WaitGroup

	mu sync.Mutex
	// ctx is Run's while it runs; nil: calls wait.
	ctx   context.Context
	known map[types.NamespacedName]*call
	turns turns.Turns
	of    map[*turns.Turn]*call // those that have not ended
}

// Options are what Saves is made with.
type Options struct {
	// PerNode is how many VMs of a node are saved at once.
	PerNode int
	// Client calls the agent of a node about the VM of a pod.
	Client func(node string, pod types.UID) (nodev1.NodeServiceClient, error)
	// Watch begins to watch a request's claims. The VM is saved only if it succeeds.
	Watch func(ctx context.Context, vm types.NamespacedName, r Request) error
	Now   func() time.Time
	// After calls a function after a time, unless what it returns is reset or stopped before; nil:
	// time.AfterFunc.
	After func(time.Duration, func()) Timer
}

// Timer is a time.Timer.
type Timer interface {
	Reset(time.Duration) bool
	Stop() bool
}

// call is one of a VM's.
type call struct {
	Call
	vm   types.NamespacedName
	turn *turns.Turn
	// cancel cancels the call, and late sets it aside; nil: it is not under way.
	cancel context.CancelFunc
	late   Timer
}

// New makes Saves without calls.
func New(o Options) *Saves {
	if o.After == nil {
		o.After = func(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
	}
	return &Saves{
		options: o, changes: newChanges(), known: make(map[types.NamespacedName]*call),
		turns: turns.Turns{PerNode: o.PerNode, Aside: aside}, of: make(map[*turns.Turn]*call),
	}
}

// Run makes the calls, until ctx ends: it ends them, and returns when they have ended. It runs
// once.
func (s *Saves) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	if s.ctx != nil {
		s.mu.Unlock()
		return errors.New("the saves have been started before")
	}
	s.ctx = ctx
	s.start()
	s.mu.Unlock()
	s.changes.run(ctx)
	s.mu.Lock()
	s.turns = turns.Turns{} // start sees that ctx has ended, too
	s.mu.Unlock()
	s.calls.Wait()
	return nil
}

// Changed has a VM when its call has begun, was set aside or has ended, or its place in the queue is
// another.
func (s *Saves) Changed() <-chan types.NamespacedName { return s.changes.out }

// Look returns a VM's call; false: there is none.
func (s *Saves) Look(vm types.NamespacedName) (Call, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.known[vm]
	if c == nil {
		return Call{}, false
	}
	found := c.Call
	if c.State == Queued {
		found.Ahead, found.Barred = s.turns.Ahead(c.turn), s.turns.Barred(c.turn)
	}
	return found, true
}

// Start queues a call for a VM. It does nothing while the VM has one that has not ended.
func (s *Saves) Start(vm types.NamespacedName, r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.known[vm]
	if before != nil && before.Active() {
		return
	}
	c := &call{vm: vm, Call: Call{Request: r}, turn: &turns.Turn{Node: r.Node, Namespace: vm.Namespace, Free: r.suspends() || r.Urgent}}
	if before != nil && before.UID == r.UID {
		c.Failures = before.Failures
	}
	s.known[vm], s.of[c.turn] = c, c
	s.turns.Add(c.turn)
	s.start()
}

// Cancel ends a VM's call and forgets it. One that is under way is forgotten when it has ended and
// its agent says that the guest goes on; else it stays, until Cancel is called once more.
func (s *Saves) Cancel(vm types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.known[vm]
	switch {
	case c == nil:
	case c.State == Running:
		c.Cancelled = true
		c.cancel()
	default:
		s.forget(c)
	}
}

// forget drops a call that is not under way; s.mu is held.
func (s *Saves) forget(c *call) {
	delete(s.known, c.vm)
	if c.State == Queued {
		s.leave(c)
	}
}

// leave gives up a call's turn, and says so to those that waited for it; s.mu is held.
func (s *Saves) leave(c *call) {
	s.turns.Remove(c.turn)
	delete(s.of, c.turn)
	s.tellWaiting(c.Node)
}

// tellWaiting says that calls of a node may have another place; s.mu is held.
func (s *Saves) tellWaiting(node string) {
	for _, c := range s.of {
		if c.Node == node && c.State == Queued {
			s.changes.add(c.vm)
		}
	}
}

// start begins the calls whose turn it is; s.mu is held.
func (s *Saves) start() {
	if s.ctx == nil || s.ctx.Err() != nil {
		return
	}
	for turn := s.turns.Next(); turn != nil; turn = s.turns.Next() {
		s.begin(s.of[turn])
	}
}

// begin begins a call; s.mu is held.
func (s *Saves) begin(c *call) {
	all := s.ctx
	ctx, cancel := context.WithCancel(all)
	c.State, c.Begun, c.cancel = Running, s.options.Now(), cancel
	c.late = s.options.After(progressPatience, func() { s.setAside(c) })
	s.changes.add(c.vm)
	request, vm, name := c.Request, c.vm, c.vm.Namespace+"/"+c.Pod
	s.calls.Go(func() {
		defer cancel()
		result, err := s.ask(ctx, vm, name, request, func() { s.progress(c) })
		s.end(c, result, err, cutOff(err) && !s.goesOn(all, name, request))
	})
}

// progress notes that a save has written something.
func (s *Saves) progress(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.Aside && s.options.Now().Sub(c.Begun) < longest {
		c.late.Reset(progressPatience)
	}
}

// setAside has others no longer wait for a call that is under way. It goes on.
func (s *Saves) setAside(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.State != Running || c.Aside || c.turn.Free {
		return
	}
	c.Aside = true
	s.turns.SetAside(c.turn)
	s.changes.add(c.vm)
	s.tellWaiting(c.Node)
	s.start()
}

// end notes how a call has ended, and begins those that waited for it.
func (s *Saves) end(c *call, result *nodev1.SaveResult, err error, unsure bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.State, c.Result, c.Err, c.Unsure, c.At = Ended, result, err, unsure, s.options.Now()
	c.Failures++
	if err == nil {
		c.Failures = 0
	}
	c.late.Stop()
	s.changes.add(c.vm)
	s.leave(c)
	if c.Cancelled && !unsure {
		s.forget(c)
	}
	s.start()
}
