package kube

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Bounds that client-go's reflectors lack: they list and watch again at once when a
// watch ends that has brought something, or when a version is too old, and wait
// forever for a server that accepts a request and does not answer. The REST client
// below them would repeat each request up to ten times: it is kept from that, as
// reflectors back off by themselves.
const (
	followsAtOnce = 10
	followsEach   = 5 * time.Second // one more
	listTimeout   = time.Minute
	// watchGrace is how much longer than it was asked for a watch may last.
	watchGrace = 30 * time.Second
)

// Following is which objects of a resource are followed.
type Following struct {
	Resource       string
	Fields, Labels string // selectors
	// MetadataOnly has them come as [metav1.PartialObjectMetadata].
	MetadataOnly bool
	// The log's message about it; empty: following the resource.
	What string
}

// ListWatch is for a reflector or an informer of client-go's, which does the work
// and goes on whatever happens. That it can't is logged once. Their own log is to
// be kept quiet, see Quiet: it has each attempt.
func (c *Client) ListWatch(f Following, log *slog.Logger) *cache.ListWatch {
	if f.What == "" {
		f.What = "following " + f.Resource
	}
	from := once{c.core}
	if f.MetadataOnly {
		from = once{c.metadata}
	}
	unbounded := cache.NewFilteredListWatchFromClient(from, f.Resource, metav1.NamespaceAll, func(o *metav1.ListOptions) {
		o.FieldSelector, o.LabelSelector = f.Fields, f.Labels
	})
	said := &Complaint{Log: log, What: f.What}
	pace := rate.NewLimiter(rate.Every(followsEach), followsAtOnce)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if err := pace.Wait(ctx); err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			list, err := unbounded.ListWithContext(ctx, o)
			said.About(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if err := pace.Wait(ctx); err != nil {
				return nil, err
			}
			bounded, cancel := context.WithTimeout(ctx, lasts(o)+watchGrace)
			inner, err := unbounded.WatchWithContext(bounded, o)
			if err != nil {
				cancel()
				said.About(ctx, err)
				return nil, err
			}
			s := &stream{inner: inner, cancel: cancel, events: make(chan watch.Event)}
			go s.run(bounded, said)
			return s, nil
		},
	}
}

// once makes requests that client-go does not repeat below its reflectors.
type once struct{ rest.Interface }

// Get begins one.
func (o once) Get() *rest.Request { return o.Interface.Get().MaxRetries(0) }

// lasts is how long a watch is asked for.
func lasts(o metav1.ListOptions) time.Duration {
	if o.TimeoutSeconds == nil {
		return 0
	}
	return time.Duration(*o.TimeoutSeconds) * time.Second
}

// stream is a watch that ends in time, and works once it has brought something.
type stream struct {
	inner  watch.Interface
	cancel context.CancelFunc
	events chan watch.Event
}

func (s *stream) run(ctx context.Context, said *Complaint) {
	defer close(s.events)
	defer s.Stop()
	for event := range s.inner.ResultChan() {
		var err error
		if event.Type == watch.Error {
			err = apierrors.FromObject(event.Object)
		}
		said.About(ctx, err)
		select {
		case s.events <- event:
		case <-ctx.Done():
			return
		}
	}
}

// ResultChan is where the events come.
func (s *stream) ResultChan() <-chan watch.Event { return s.events }

// Stop ends it.
func (s *stream) Stop() {
	s.cancel()
	s.inner.Stop()
}

// Quiet keeps client-go from logging what it does with a context.
func Quiet(ctx context.Context) context.Context {
	return klog.NewContext(ctx, klog.Logger(logr.Discard()))
}
