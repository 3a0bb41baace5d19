package nodeobject

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/vmlet/vmlet/agent/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// metadataOnly asks for objects without what is in them: a Node's status is long
// and changes all the time.
const metadataOnly = runtime.ContentTypeProtobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	runtime.ContentTypeJSON + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

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
// last seen stands.
func (w *Watch) Run(ctx context.Context) {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() {
		w.follow(ctx, w.nodes, "nodes", metav1.ListOptions{FieldSelector: "metadata.name=" + w.client.Node()})
	})
	both.Go(func() {
		w.follow(ctx, w.pods, "pods", metav1.ListOptions{
			FieldSelector: "status.phase=Running,spec.nodeName=" + w.client.Node(), LabelSelector: virtHandlerLabel,
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

// follow keeps a value as the API server has it. client-go's reflector does the
// work, and goes on whatever happens.
func (w *Watch) follow(ctx context.Context, to *Value[objects], resource string, only metav1.ListOptions) {
	said := &complaint{log: w.log, what: "following " + resource}
	ask := func(o metav1.ListOptions) *rest.Request {
		o.FieldSelector, o.LabelSelector = only.FieldSelector, only.LabelSelector
		return w.client.Core().Get().Resource(resource).SetHeader("Accept", metadataOnly).VersionedParams(&o, metav1.ParameterCodec)
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := ask(o).Do(ctx).Get()
			said.about(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			stream, err := ask(o).Timeout(watchTime(o)).Watch(ctx)
			said.about(ctx, err)
			return stream, err
		},
	}
	// What goes wrong is said above, once: its own log would say it each time.
	quiet := klog.Logger(logr.Discard())
	r := cache.NewReflectorWithOptions(lw, &object{}, store{to}, cache.ReflectorOptions{Name: resource, Logger: &quiet})
	r.RunWithContext(klog.NewContext(ctx, quiet))
}

func watchTime(o metav1.ListOptions) time.Duration {
	if o.TimeoutSeconds == nil {
		return 0
	}
	return time.Duration(*o.TimeoutSeconds) * time.Second
}

// complaint logs what fails once, and that it goes again.
type complaint struct {
	log  *slog.Logger
	what string

	mu   sync.Mutex
	last string
}

func (c *complaint) about(ctx context.Context, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // the reflector begins anew
	}
	now := ""
	if err != nil {
		now = err.Error()
	}
	c.mu.Lock()
	before := c.last
	c.last = now
	c.mu.Unlock()
	switch {
	case err != nil && (before == "" || apierrors.IsForbidden(err) && before != now):
		c.log.Warn(c.what+" fails", "error", err, "remedy", remedy(err))
	case err == nil && before != "":
		c.log.Info(c.what + " works again")
	}
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
			if old.Name != fresh.Name || old.Namespace != fresh.Namespace { // else it was made anew
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
