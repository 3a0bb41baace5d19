package capabilities

import (
	"context"
	"sync"
	"time"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/internal/fingerprint"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
)

// passingBelief is how long a verdict is believed that may be another in a
// moment (no memory, busy, no answer in time): each start of a VM would wait for
// it again.
const passingBelief = 10 * time.Second

// Keeper has the document of a machine and knows when it isn't true any more.
// Its methods may be called concurrently.
type Keeper struct {
	sources Sources
	kept    *kept

	// asking is held while the machine is asked: who comes meanwhile waits for
	// that document.
	asking chan struct{}
	stats  probeStats

	mu          sync.Mutex
	doc         *capabilitiesv1.Capabilities // nil: not asked yet
	key         string                       // what doc depends on
	at          time.Time                    // when it was made
	subscribers map[chan *capabilitiesv1.Capabilities]bool
}

// NewKeeper returns one that has asked nothing yet.
func NewKeeper(s Sources) *Keeper {
	return &Keeper{
		sources: s, kept: openKept(s.cacheFile(), s.log()),
		asking: make(chan struct{}, 1), subscribers: map[chan *capabilitiesv1.Capabilities]bool{},
	}
}

// Document is the document as it is now: what is cheap is read, what is expensive is
// asked only if something that it depends on has changed. The error is ctx's.
// The document is shared and not to be changed.
func (k *Keeper) Document(ctx context.Context) (*capabilitiesv1.Capabilities, error) {
	return k.ask(ctx, false, nil)
}

// Refresh asks everything again.
func (k *Keeper) Refresh(ctx context.Context) (*capabilitiesv1.Capabilities, error) {
	return k.ask(ctx, true, nil)
}

// last is the last document, if nothing that it depends on has changed since: it
// costs a tenth of Document.
func (k *Keeper) last(ctx context.Context) (*capabilitiesv1.Capabilities, error) {
	if doc := k.standing(); doc != nil {
		return doc, nil
	}
	return k.ask(ctx, false, k.standing)
}

// ask makes a document, unless there is one that will do by the time that it is
// this caller's turn.
func (k *Keeper) ask(ctx context.Context, refresh bool, enough func() *capabilitiesv1.Capabilities) (*capabilitiesv1.Capabilities, error) {
	select {
	case k.asking <- struct{}{}:
		defer func() { <-k.asking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if enough != nil {
		if doc := enough(); doc != nil {
			return doc, nil
		}
	}
	s := k.sources
	s.Refresh = refresh
	// Before: what changes meanwhile is seen the next time.
	key := s.changeKey(HostKey(s.Roots, s.Version, s.Hypervisors.All()))
	begun := time.Now()
	doc, err := newCollection(s, k.kept).run(ctx)
	k.stats.count(doc, err, time.Since(begun))
	if err != nil {
		return nil, err
	}
	k.publish(doc, key)
	return doc, nil
}

// changeKey changes when something does that the document's expensive parts depend on,
// as far as that is known before they are asked.
func (s Sources) changeKey(host string) string {
	k := newKey("change", s.Version)
	k.add("host", host)
	for _, h := range s.Hypervisors.All() {
		if d := h.Device(); d != "" {
			k.add(d, deviceState(d))
		}
	}
	for _, v := range s.VMMs {
		for _, path := range filesOf(v) {
			k.add(path, fingerprint.Of(path, inFolders))
		}
	}
	return k.String()
}

// standing is the last document if it still holds, else nil.
func (k *Keeper) standing() *capabilitiesv1.Capabilities {
	k.mu.Lock()
	doc, key, at := k.doc, k.key, k.at
	k.mu.Unlock()
	if doc == nil || key != k.sources.changeKey(k.sources.recentHostKey()) || !k.kept.sameFiles() {
		return nil
	}
	for _, h := range doc.GetHypervisors() {
		if !lasting(statusOf(h)) && time.Since(at) >= passingBelief {
			return nil
		}
	}
	return doc
}

// publish makes a document the last one, and tells the subscribers if it says
// something else than the one before.
func (k *Keeper) publish(doc *capabilitiesv1.Capabilities, key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.doc
	k.doc, k.key, k.at = doc, key, time.Now()
	if Equal(before, doc) {
		return
	}
	for c := range k.subscribers {
		select {
		case <-c: // one that wasn't fetched yet is outdated
		default:
		}
		c <- doc
	}
}

// Subscribe returns a channel on which each document arrives that says something
// else than the one before, the first one included. Who is slow misses all but
// the newest. stop ends it; the channel isn't closed.
func (k *Keeper) Subscribe() (changes <-chan *capabilitiesv1.Capabilities, stop func()) {
	c := make(chan *capabilitiesv1.Capabilities, 1)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.subscribers[c] = true
	return c, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.subscribers, c)
	}
}

// Hypervisors are those of the sources, whose Check answers from the document:
// at once, unless something has changed.
func (k *Keeper) Hypervisors() (*hypervisor.Local, error) {
	var all []hypervisor.Hypervisor
	for _, h := range k.sources.Hypervisors.All() {
		all = append(all, known{h, k})
	}
	return hypervisor.NewLocal(all...)
}

// known is a hypervisor that the document tells of.
type known struct {
	hypervisor.Hypervisor
	keeper *Keeper
}

// Unwrap is for hypervisor.As.
func (h known) Unwrap() hypervisor.Hypervisor { return h.Hypervisor }

func (h known) Check(ctx context.Context) hypervisor.Status {
	doc, err := h.keeper.last(ctx)
	if err != nil {
		return hypervisor.Status{Level: hypervisor.Unusable, Reason: h.Name() + " was not asked: " + err.Error()}
	}
	for _, c := range doc.GetHypervisors() {
		if c.GetName() == h.Name() {
			return statusOf(c)
		}
	}
	return hypervisor.Status{Level: hypervisor.Unusable, Reason: h.Name() + " is not in this node's document"}
}
