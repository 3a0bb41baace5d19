// Package controller keeps a cluster as the catalogue wants it. It decides nothing itself: package
// decide does. Each asset is an item of the queue, with its own watch, back-off and pace, so that
// one that fails holds up no other. Start reading at Run.
package controller

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"

	"github.com/vmlet/vmlet/autopilot/anchor"
	"github.com/vmlet/vmlet/autopilot/apply"
	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/evaluate"
	"github.com/vmlet/vmlet/autopilot/facts"
	"github.com/vmlet/vmlet/autopilot/metrics"
	"github.com/vmlet/vmlet/autopilot/pace"
	"github.com/vmlet/vmlet/autopilot/render"
)

// Times.
const (
	// resync is how often an asset is looked at though nothing has changed: what templates look up
	// is not watched.
	resync = 5 * time.Minute
	// fold is how long changes of facts are collected: a node that joins changes many times.
	fold = time.Second
	// patience bounds one reconciliation: webhooks may take half of it.
	patience = time.Minute
	// An asset that fails is tried again after firstBackoff, and then after twice as long each time.
	firstBackoff, lastBackoff = time.Second, 5 * time.Minute
	// order is how often an asset looks whether the golden configuration has been tried.
	order = 200 * time.Millisecond
)

// workers reconcile at once: one that waits for a webhook leaves others to go on.
const workers = 3

// Options are what a controller needs.
type Options struct {
	API     dynamic.Interface
	Catalog *catalog.Catalog
	Metrics *metrics.Metrics
	Events  events.EventRecorder
	// Namespace is the autopilot's own.
	Namespace string
	// Configuration is the namespace of the HyperConverged or KubeVirt object that counts; empty: Namespace.
	Configuration string
	Now           func() time.Time
	Log           *slog.Logger
}

type controller struct {
	Options
	follower
	reader cached
	write  apply.Applier
	look   evaluate.Evaluator
	pace   *pace.Pace
	queue  workqueue.TypedRateLimitingInterface[string]

	mu     sync.Mutex
	states map[string]*state // by the queue's item
	told   string            // what was said of the platform object last
	on     bool
	first  map[string]bool // items that are still to be tried before the others
}

func newController(ctx context.Context, o Options) *controller {
	c := &controller{
		Options: o, write: apply.Applier{API: o.API}, pace: &pace.Pace{Now: o.Now},
		follower: follower{ctx: ctx, api: o.API, log: o.Log, all: make(map[watch]*followed)},
		states:   make(map[string]*state), told: "nothing yet",
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstBackoff, lastBackoff)),
	}
	c.reader = cached{&c.follower, o.Namespace, func() { c.all(fold) }}
	c.look = evaluate.Evaluator{
		Renderer: render.Renderer{Files: o.Catalog.Active(), From: apply.Reader{API: o.API}},
		Live:     c.live,
		Paused:   c.pace.Paused,
	}
	return c
}

// Run reconciles until ctx ends.
func Run(ctx context.Context, o Options) error {
	c := newController(ctx, o)
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	c.all(0)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for c.work(ctx) {
			}
		})
	}
	all.Wait()
	return nil
}

// items are those of the queue: tombstones, then assets in their order.
func (c *controller) items() (names []string) {
	for i := range c.Catalog.Tombstones {
		names = append(names, fmt.Sprintf("%s%d", tombstone, i))
	}
	for _, a := range c.Catalog.Assets {
		names = append(names, a.Name)
	}
	return names
}

// tombstone begins the items that are none of assets.
const tombstone = "tombstone/"

// all has everything looked at.
func (c *controller) all(after time.Duration) {
	for _, item := range c.items() {
		c.queue.AddAfter(item, after)
	}
}

// work does one item of the queue, and returns false when the queue has ended.
func (c *controller) work(ctx context.Context) bool {
	item, over := c.queue.Get()
	if over {
		return false
	}
	defer c.queue.Done(item)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	again, err := c.reconcile(ctx, item)
	if err != nil {
		c.Log.Warn("asset failed", "asset", item, "error", err)
		c.queue.AddRateLimited(item)
		return true
	}
	c.queue.Forget(item)
	if again == 0 {
		again = resync + rand.N(resync/5)
	}
	c.queue.AddAfter(item, again)
	return true
}

// reconcile looks at one item. Without an error it is looked at again after a time, 0: the usual.
func (c *controller) reconcile(ctx context.Context, item string) (time.Duration, error) {
	if c.waits(item) {
		return order, nil
	}
	f, err := facts.Gather(ctx, c.reader, c.Namespace, c.Configuration)
	if err != nil {
		return 0, err
	}
	if !f.Kinds.Served(kubeVirt()) {
		c.drop(watch{of: facts.KubeVirts()})
	}
	if of := f.Kinds.HyperConverged(); !f.Kinds.Defined(of.GroupResource().String()) {
		c.drop(watch{of: of})
	}
	if !c.observe(f) {
		c.reset(item)
		return 0, nil
	}
	if c.waits(item) {
		return order, nil
	}
	defer c.tried(item)
	var n int
	if _, err := fmt.Sscanf(item, tombstone+"%d", &n); err == nil {
		return 0, c.bury(ctx, c.Catalog.Tombstones[n], f)
	}
	return c.asset(ctx, c.Catalog.Named(item), f)
}

func kubeVirt() schema.GroupVersionKind {
	return facts.KubeVirts().GroupVersion().WithKind(anchor.KindKubeVirt)
}

// observe says once what the platform object says, and reports whether the autopilot is on: "off" or
// "no" as the gate's value is a list of one name, which is none of the catalogue.
func (c *controller) observe(f facts.Facts) bool {
	on := false
	var warning error
	if f.Anchor != nil && f.Anchor.Scope.On() {
		warning = evaluate.Annotations(c.Catalog, f)
		on = f.Anchor.Scope.All || len(f.Anchor.Scope.Unknown(c.Catalog.Knows)) < len(f.Anchor.Scope.Names)
	}
	told := fmt.Sprint(on, warning, names(f.Ignored))
	c.mu.Lock()
	defer c.mu.Unlock()
	if told == c.told {
		return on
	}
	if !on {
		c.Log.Info("Autopilot not enabled, keeping idle. Set annotation to opt in.", "annotation", anchor.Gate, "value", "true or comma-separated asset names")
		c.Metrics.Clear()
		c.first = nil
	}
	if on && !c.on { // in this order: tombstones, golden configuration, all others
		c.Log.Info("autopilot is on", "platform", f.Anchor.Kind+" "+f.Anchor.Namespace+"/"+f.Anchor.Name)
		c.first = make(map[string]bool)
		for _, item := range c.items() {
			if a := c.Catalog.Named(item); a == nil || a.First() {
				c.first[item] = true
			}
		}
	}
	c.told, c.on = told, on
	for _, o := range f.Ignored[:min(len(f.Ignored), maxIgnored)] {
		c.ignore(o)
	}
	if warning != nil {
		c.event(f, nil, warningType, "InvalidAnnotation", warning.Error())
	}
	return on
}

// waits reports whether an item has to wait for others that come first and have not been tried.
func (c *controller) waits(item string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.first) > 0 && !c.first[item]
}

// tried lets the others go on once all that come first have been tried, even if they failed.
func (c *controller) tried(item string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.first, item)
}

// reset forgets what is known of an asset: nothing is followed of it, and no metric has it.
func (c *controller) reset(item string) {
	c.Metrics.Set(item, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.states[item]; st != nil {
		c.drop(st.watch)
		delete(c.states, item)
	}
}
