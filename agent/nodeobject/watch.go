package nodeobject

import (
	"context"
	"log/slog"
	"sync"

	"github.com/vmlet/vmlet/agent/kube"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// object is the metadata of a Node or pod.
type object = metav1.PartialObjectMetadata

// objects are those that were last seen, by UID; nil: never seen.
type objects map[types.UID]*object

// Watch follows this node's object and the pods on it that may be a virt-handler's.
type Watch struct {
	client *kube.Client
	log    *slog.Logger

	nodes, pods *Value[objects]
}

// NewWatch makes one that sees nothing before Run.
func NewWatch(client *kube.Client, log *slog.Logger) *Watch {
	return &Watch{client: client, log: log, nodes: NewValue[objects](nil), pods: NewValue[objects](nil)}
}

// Run follows them until ctx ends. While the API server can't be reached, what was
// last seen stays.
func (w *Watch) Run(ctx context.Context) {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() {
		w.follow(ctx, w.nodes, kube.Following{Resource: "nodes", Fields: "metadata.name=" + w.client.Node()})
	})
	both.Go(func() {
		w.follow(ctx, w.pods, kube.Following{
			Resource: "pods", Fields: "status.phase=Running,spec.nodeName=" + w.client.Node(), Labels: virtHandlerLabel,
			What: "looking for a virt-handler",
		})
	})
}

// node is the newest that is known of the Node; nil: nothing, or it is gone.
func (w *Watch) node() (*object, <-chan struct{}) {
	all, changed := w.nodes.Get()
	for _, o := range all {
		return o, changed
	}
	return nil, changed
}

// wrote takes what the API server answered to a write: the watch may be late.
func (w *Watch) wrote(o *object) { _ = store{w.nodes}.Add(o) }

// follow keeps a value as the API server has it.
func (w *Watch) follow(ctx context.Context, to *Value[objects], only kube.Following) {
	only.MetadataOnly = true
	ctx = kube.Quiet(ctx)
	quiet := klog.FromContext(ctx)
	r := cache.NewReflectorWithOptions(w.client.ListWatch(only, w.log), &object{}, store{to},
		cache.ReflectorOptions{Name: only.Resource, Logger: &quiet})
	r.RunWithContext(ctx)
}

// store is a reflector's, which has no resync.
type store struct{ to *Value[objects] }

// Add takes an object, unless a newer one is known.
func (s store) Add(o any) error {
	s.to.Update(func(before objects) (objects, bool) {
		fresh, is := o.(*object)
		if !is || fresh == nil || !newer(fresh, before[fresh.UID]) {
			return before, false
		}
		after := objects{}
		for uid, old := range before {
			if old.Name != fresh.Name || old.Namespace != fresh.Namespace { // else it was created again
				after[uid] = old
			}
		}
		after[fresh.UID] = fresh
		return after, true
	})
	return nil
}

// Update is Add.
func (s store) Update(o any) error { return s.Add(o) }

// Delete forgets an object.
func (s store) Delete(o any) error {
	s.to.Update(func(before objects) (objects, bool) {
		gone, is := o.(*object)
		if !is || gone == nil || before[gone.UID] == nil {
			return before, false
		}
		after := objects{}
		for uid, old := range before {
			if uid != gone.UID {
				after[uid] = old
			}
		}
		return after, true
	})
	return nil
}

// Replace takes a whole list.
func (s store) Replace(list []any, _ string) error {
	s.to.Update(func(before objects) (objects, bool) {
		after := objects{}
		for _, o := range list {
			fresh, is := o.(*object)
			if !is || fresh == nil {
				continue
			}
			if old := before[fresh.UID]; !newer(fresh, old) {
				fresh = old
			}
			after[fresh.UID] = fresh
		}
		return after, true
	})
	return nil
}

// Resync does nothing.
func (store) Resync() error { return nil }

// newer: an object is to be taken in place of one that is known. Of versions that
// can't be compared the later to come counts.
func newer(fresh, known *object) bool {
	if known == nil {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(fresh.ResourceVersion, known.ResourceVersion)
	return err != nil || order > 0
}

// Value is something that changes and that others follow. Its methods may be
// called concurrently.
type Value[T any] struct {
	mu      sync.Mutex
	value   T
	changed chan struct{}
}

// NewValue starts with a value.
func NewValue[T any](value T) *Value[T] {
	return &Value[T]{value: value, changed: make(chan struct{})}
}

// Get is the value as it is now, and a channel that is closed when there is
// another one.
func (v *Value[T]) Get() (T, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value, v.changed
}

// Set changes the value.
func (v *Value[T]) Set(value T) { v.Update(func(T) (T, bool) { return value, true }) }

// Update changes the value to what follows from the one before, if it is to.
func (v *Value[T]) Update(next func(T) (T, bool)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	value, change := next(v.value)
	if !change {
		return
	}
	v.value = value
	close(v.changed)
	v.changed = make(chan struct{})
}
