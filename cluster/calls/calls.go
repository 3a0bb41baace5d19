// Package calls makes short calls to nodes' agents and pods for reconcilers, which don't wait for them:
// a reconciler that asks again learns how the call ended. It bounds how many calls of a node are under
// way, gives each namespace its turn, keeps no other waiting for one that hangs, and makes no call again and
// again. It must not know what is called. Start reading at Calls.Make.
package calls

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vmlet/vmlet/cluster/turns"
)

const (
	// perNode is how many calls of a node others wait for, and aside how many more a namespace may
	// have under way there.
	perNode = 4
	aside   = 4
	// answerPatience is how long others wait for a call.
	answerPatience = time.Second
	// firstAgain and lastAgain are how long after a call the same one is made again: twice as long
	// after each.
	firstAgain = 500 * time.Millisecond
	lastAgain  = 10 * time.Second
	// forgetAfter is how long after a call that was asked for no more it is forgotten, and
	// keepAnswer how long its answer is one about the present.
	forgetAfter = time.Minute
	keepAnswer  = 10 * time.Second
)

// Key names a call: the same one is not made twice at once.
type Key struct {
	// Object is that of whose call the changes tell.
	Object types.NamespacedName
	// Node is where the call goes to.
	Node string
	// Pod is the pod that it is about, and What says what is called, with all that matters to it.
	Pod  types.UID
	What string
}

// Answer is what is known of a call.
type Answer[R any] struct {
	// Ended: the call has ended, with Result and Err. It is reported once.
	Ended  bool
	Result R
	Err    error
	// Again is when to ask again, of a call that was made just now and is not made again yet;
	// 0: the object is queued when the call ends.
	Again time.Duration
}

// Calls are those under way and those that have ended. Its methods may be called concurrently.
type Calls[R any] struct {
	options Options
	out     chan types.NamespacedName
	running sync.WaitGroup

	mu    sync.Mutex
	ctx   context.Context // Run's; nil: it does not run, and calls wait
	known map[Key]*call[R]
	turns turns.Turns
	of    map[*turns.Turn]*call[R] // those that have not ended
}

// Options are what Calls is made with.
type Options struct {
	Now func() time.Time
	// After calls a function after a time; nil: time.AfterFunc.
	After func(time.Duration, func())
}

type call[R any] struct {
	key    Key
	do     func(context.Context) (R, error)
	turn   *turns.Turn // nil: it has ended
	answer Answer[R]   // Ended until it was taken
	at     time.Time   // of its end
	times  int         // how often it was made
}

// New makes Calls without calls.
func New[R any](o Options) *Calls[R] {
	if o.After == nil {
		o.After = func(d time.Duration, f func()) { time.AfterFunc(d, f) }
	}
	return &Calls[R]{
		options: o, out: make(chan types.NamespacedName), known: make(map[Key]*call[R]),
		turns: turns.Turns{PerNode: perNode, Aside: aside}, of: make(map[*turns.Turn]*call[R]),
	}
}

// Run makes the calls until ctx ends, and returns when they have ended. It runs once.
func (c *Calls[R]) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	if c.ctx != nil {
		c.mu.Unlock()
		return errors.New("the calls have been started before")
	}
	c.ctx = ctx
	c.begin()
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.turns = turns.Turns{} // from now on begin finds none whose turn it is
	c.mu.Unlock()
	c.running.Wait()
	return nil
}

// Changed has the object of a call that has ended. Somebody has to read it while Run runs.
func (c *Calls[R]) Changed() <-chan types.NamespacedName { return c.out }

// Make returns how a call has ended, if it has; else it is made by do, unless it is under way, or was
// made just now. It does not wait. do bounds its own time.
func (c *Calls[R]) Make(key Key, do func(context.Context) (R, error)) Answer[R] {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.options.Now()
	k := c.known[key]
	switch {
	case k == nil:
		c.forget(now)
		k = &call[R]{key: key}
		c.known[key] = k
	case k.turn != nil:
		return Answer[R]{}
	case k.answer.Ended && now.Sub(k.at) < keepAnswer:
		answer := k.answer
		k.answer = Answer[R]{}
		return answer
	}
	if again := k.again(now); again > 0 {
		return Answer[R]{Again: again}
	}
	k.do, k.answer = do, Answer[R]{}
	k.turn = &turns.Turn{Node: key.Node, Namespace: key.Object.Namespace}
	c.of[k.turn] = k
	c.turns.Add(k.turn)
	c.begin()
	return Answer[R]{}
}

// again is how long the call is not made yet.
func (k *call[R]) again(now time.Time) time.Duration {
	if k.times == 0 {
		return 0
	}
	wait := lastAgain
	if k.times < 6 { // firstAgain · 2⁵ is more than lastAgain
		wait = min(firstAgain<<(k.times-1), lastAgain)
	}
	return k.at.Add(wait).Sub(now)
}

// forget drops calls that nobody asks for any more; c.mu is held.
func (c *Calls[R]) forget(now time.Time) {
	maps.DeleteFunc(c.known, func(_ Key, k *call[R]) bool { return k.turn == nil && now.Sub(k.at) > forgetAfter })
}

// begin begins the calls whose turn it is; c.mu is held.
func (c *Calls[R]) begin() {
	if c.ctx == nil {
		return
	}
	for turn := c.turns.Next(); turn != nil; turn = c.turns.Next() {
		k := c.of[turn]
		c.options.After(answerPatience, func() { c.setAside(turn) })
		ctx := c.ctx
		c.running.Go(func() {
			result, err := k.do(ctx)
			c.end(k, result, err)
			select {
			case c.out <- k.key.Object:
			case <-ctx.Done():
			}
		})
	}
}

// setAside has others no longer wait for a call.
func (c *Calls[R]) setAside(turn *turns.Turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[turn] != nil {
		c.turns.SetAside(turn)
		c.begin()
	}
}

// end notes how a call has ended.
func (c *Calls[R]) end(k *call[R], result R, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turns.Remove(k.turn)
	delete(c.of, k.turn)
	k.turn, k.do, k.at = nil, nil, c.options.Now()
	k.times++
	k.answer = Answer[R]{Ended: true, Result: result, Err: err}
	c.begin()
}
