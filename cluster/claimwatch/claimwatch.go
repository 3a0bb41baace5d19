// Package claimwatch knows whether another pod has used a claim since a VM was saved whose disk is on
// it. A block device has no times that show who wrote to it: that no pod could is all there is to know.
//
// Watch follows all pods while a saved VM has such a disk. What it has seen, and up to which resource
// version, is in one ConfigMap, so that another controller goes on from there: if the API server still
// has what came after, nothing was missed; else there is a gap, and it is not known who used the claims
// in it. The package must not know what a save is, nor what follows from a claim's use. Start reading at
// Watch.
package claimwatch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// keepInterval is how often the position is written. API servers keep the last 75 s of what
	// happened to pods at least (eventFreshDuration of Kubernetes' watch cache).
	keepInterval = 15 * time.Second
	// retryInterval is how long is waited before the API server is asked again.
	retryInterval = time.Second
	// lastPatience is for the last write of a controller that ends.
	lastPatience = 3 * time.Second
	// lookPatience is how long Look waits for what the API server has said up to now.
	lookPatience = 10 * time.Second
	// tidyAge is how old a use is before it is asked whether anybody needs it: caches lag.
	tidyAge = 5 * time.Minute
)

// API is what Watch asks of the API server. All reads are live.
type API interface {
	// Position is a resource version of pods from which Watch goes on.
	Position(ctx context.Context) (string, error)
	// Watch follows all pods from there, with bookmarks.
	Watch(ctx context.Context, from string) (watch.Interface, error)
	// Pods calls each for all pods of a namespace.
	Pods(ctx context.Context, namespace string, each func(*corev1.Pod)) error
	Claim(ctx context.Context, claim types.NamespacedName) (*corev1.PersistentVolumeClaim, error)
	// Mark changes this program's own pod, so that Watch shows a pod with that mark, and Marked
	// returns it; empty: the pod is another one.
	Mark(ctx context.Context, mark string) error
	Marked(p *corev1.Pod) string
	// Read reads the record, and Write replaces the version that was read; version is empty while
	// there is none.
	Read(ctx context.Context) (text, version string, err error)
	Write(ctx context.Context, text, version string) (next string, err error)
}

// Options are what Watch is made with.
type Options struct {
	API API
	// Needed: there is a VM that is being saved in this way, or was. It may be read from a cache.
	Needed func(Use) bool
	Now    func() time.Time
	Log    *slog.Logger
}

// Watch follows pods for saved VMs. Its methods may be called concurrently, and wait for Run.
type Watch struct {
	o   Options
	id  string // of this process
	out chan types.NamespacedName

	writing sync.Mutex // held while the record is written, before mu
	version string     // of the record that was read or written last

	mu     sync.Mutex
	loaded bool
	record record
	dirty  bool // the record is to be written
	// asked and echoed are the numbers of the last marks that were made, and seen.
	asked, echoed uint64
	changed       chan struct{} // closed, and replaced, when any of these has changed
}

// New makes a Watch.
func New(o Options) *Watch {
	return &Watch{o: o, id: rand.Text(), out: make(chan types.NamespacedName), changed: make(chan struct{})}
}

// Changed has a VM when a claim of its disks was used, or is not watched any more. Somebody has to
// read it while Run runs.
func (w *Watch) Changed() <-chan types.NamespacedName { return w.out }

// Run watches until ctx ends, or another controller has written the record. Of all controllers only
// the leader's runs.
func (w *Watch) Run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	for !w.load(ctx) {
		if !pause(ctx, retryInterval) {
			return nil
		}
	}
	var keeper sync.WaitGroup
	keeper.Go(func() { w.keep(ctx, end) })
	for ctx.Err() == nil {
		if w.await(ctx, func() bool { return w.record.watches() }) != nil {
			break
		}
		w.tell(ctx, w.follow(ctx))
	}
	keeper.Wait()
	if err := context.Cause(ctx); errors.Is(err, errOther) {
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPatience)
	defer cancel()
	if err := w.write(last); err != nil {
		w.o.Log.Warn("the record of watched claims is not up to date", "error", err)
	}
	return nil
}

// Begin begins to watch the claims of a VM's disks for a save. When it returns nil, the record has
// them, and no other pod uses them.
func (w *Watch) Begin(ctx context.Context, s Use, claims []string) error {
	uses := make([]*Use, len(claims))
	for i, name := range claims {
		c, err := w.o.API.Claim(ctx, types.NamespacedName{Namespace: s.Namespace, Name: name})
		if err != nil {
			return err
		}
		u := s
		u.Claim, u.ClaimUID, u.Volume, u.Since = name, c.UID, c.Spec.VolumeName, w.o.Now()
		uses[i] = &u
	}
	if err := w.add(ctx, s.Namespace, uses); err != nil {
		return err
	}
	// What comes from now on is seen by the watch, and what was there before by this list.
	err := w.unused(ctx, s.Namespace, uses)
	if err == nil {
		err = w.write(ctx)
	}
	if err == nil && !w.stillOpen(uses) {
		err = errors.New("a pod has begun to use the VM's disks, or the watch of pods was interrupted")
	}
	if err != nil {
		w.drop(func(u *Use) bool { return slices.Contains(uses, u) })
	}
	return err
}

// add begins to watch, if need be, and adds a namespace's uses, if there is room.
func (w *Watch) add(ctx context.Context, namespace string, uses []*Use) error {
	if err := w.await(ctx, func() bool { return w.loaded }); err != nil {
		return err
	}
	from, err := w.o.API.Position(ctx)
	if err != nil {
		return err
	}
	w.change(func() {
		if err = w.record.room(namespace, uses); err != nil {
			return
		}
		if !w.record.watches() { // an older position is of no use to anybody, and may be too old
			w.record.Position, w.record.Seen = from, w.o.Now()
		}
		w.record.Uses = append(w.record.Uses, uses...)
		w.dirty = true
	})
	return err
}

// unused is an error if a pod of another VM, or of none, uses one of the claims now.
func (w *Watch) unused(ctx context.Context, namespace string, uses []*Use) error {
	var used error
	err := w.o.API.Pods(ctx, namespace, func(p *corev1.Pod) {
		for _, u := range uses {
			if used == nil && u.usedBy(p) {
				used = fmt.Errorf("claim %s, which has a disk of the VM and volumeMode Block, is used by pod %s, too: end that pod", u.Claim, p.Name)
			}
		}
	})
	return errors.Join(used, err)
}

func (w *Watch) stillOpen(uses []*Use) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(uses, func(u *Use) bool { return !u.open() })
}

// Look returns what is known of the claims of a save, by all that the API server knows of pods up to
// now. It returns an error if it can't know that yet.
func (w *Watch) Look(ctx context.Context, namespace, directory string) ([]Use, error) {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	if err := w.await(ctx, func() bool { return w.loaded }); err != nil {
		return nil, err
	}
	settled := func() bool {
		return !slices.ContainsFunc(w.record.of(namespace, directory), func(u Use) bool { return u.open() })
	}
	w.mu.Lock()
	known := settled()
	w.asked++
	n := w.asked
	w.mu.Unlock()
	if !known {
		// The mark comes after everything that has happened to pods before.
		if err := w.o.API.Mark(ctx, w.id+"."+strconv.FormatUint(n, 10)); err != nil {
			return nil, fmt.Errorf("mark the present in the watch of pods: %w", err)
		}
		if err := w.await(ctx, func() bool { return w.echoed >= n || settled() }); err != nil {
			return nil, fmt.Errorf("the watch of pods has not come to the present: %w", err)
		}
	}
	return w.Known(namespace, directory), nil
}

// Known returns what is known of the claims of a save. A pod that came just now may be missing.
func (w *Watch) Known(namespace, directory string) []Use {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.record.of(namespace, directory)
}

// follow watches pods until that isn't needed any more or there is a gap, and returns the VMs that
// were lost from sight by that.
func (w *Watch) follow(ctx context.Context) (lost []types.NamespacedName) {
	for ctx.Err() == nil {
		w.mu.Lock()
		from, needed := w.record.Position, w.record.watches()
		w.mu.Unlock()
		if !needed {
			return nil
		}
		var err error
		if from != "" {
			err = w.read(ctx, from)
		}
		if from == "" || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			w.change(func() { lost, w.dirty = w.record.lose(w.o.Now()), true })
			w.o.Log.Warn("pods were not watched for a time: it is not known whether any has used disks of saved VMs", "vms", len(lost), "error", err)
			return lost
		}
		if err != nil && ctx.Err() == nil {
			w.o.Log.Warn("the watch of pods was interrupted", "error", err)
		}
		pause(ctx, retryInterval)
	}
	return nil
}

// read reads one watch from a position to its end.
func (w *Watch) read(ctx context.Context, from string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := w.o.API.Watch(ctx, from)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, stream.Stop)
	for e := range stream.ResultChan() {
		if e.Type == watch.Error {
			return apierrors.FromObject(e.Object)
		}
		p, is := e.Object.(*corev1.Pod)
		if !is || p.ResourceVersion == "" {
			return fmt.Errorf("a watch of pods has %T", e.Object)
		}
		if w.tell(ctx, w.see(p, e.Type == watch.Bookmark)); !w.watches() {
			return nil
		}
	}
	return nil
}

func (w *Watch) watches() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.record.watches()
}

// see takes one event of a pod, or a bookmark.
func (w *Watch) see(p *corev1.Pod, bookmark bool) (used []types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.Position, w.record.Seen, w.dirty = p.ResourceVersion, w.o.Now(), true
	if bookmark {
		return nil
	}
	if used = w.record.see(p); len(used) > 0 {
		w.wake()
	}
	if id, n, is := strings.Cut(w.o.API.Marked(p), "."); is && id == w.id {
		if n, err := strconv.ParseUint(n, 10, 64); err == nil && n > w.echoed {
			w.echoed = n
			w.wake()
		}
	}
	return used
}

// tell records the uses that VMs will hear of, and then tells them.
func (w *Watch) tell(ctx context.Context, vms []types.NamespacedName) {
	if len(vms) == 0 {
		return
	}
	if err := w.write(ctx); err != nil && ctx.Err() == nil {
		w.o.Log.Warn("failed to write the record of watched claims", "error", err) // keep tries again
	}
	for _, vm := range vms {
		select {
		case w.out <- vm:
		case <-ctx.Done():
		}
	}
}

// change changes what mu guards.
func (w *Watch) change(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
	w.wake()
}

// wake has await look again; mu is held.
func (w *Watch) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// await waits until something is so.
func (w *Watch) await(ctx context.Context, so func() bool) error {
	for {
		w.mu.Lock()
		is, changed := so(), w.changed
		w.mu.Unlock()
		if is {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pause waits; false: ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
