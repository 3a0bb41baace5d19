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

// Bounds of what client-go's reflectors do without any: they begin again at once
// when a watch has brought something and ends, or a version is called too old, and
// they wait for ever for who has taken a request and says nothing. Nor is anything
// asked again below them, eleven times a second each: they wait longer and longer.
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
	// Accept is the form in which they come; empty: whole.
	Accept string
	// What is said of it in the log; empty: following the resource.
	What string
}

// ListWatch is for a reflector or an informer, which does the work and goes on
// whatever happens. That it can't is logged once. Their own log is to be kept
// quiet, see Quiet: it has each attempt.
func (c *Client) ListWatch(f Following, log *slog.Logger) *cache.ListWatch {
	if f.What == "" {
		f.What = "following " + f.Resource
	}
	said := &Complaint{Log: log, What: f.What}
	pace := rate.NewLimiter(rate.Every(followsEach), followsAtOnce)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if err := pace.Wait(ctx); err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			list, err := f.request(c.core, o).Do(ctx).Get()
			said.About(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if err := pace.Wait(ctx); err != nil {
				return nil, err
			}
			stream, err := f.watch(ctx, c.core, o, said)
			if err != nil {
				said.About(ctx, err)
				return nil, err
			}
			return stream, nil
		},
	}
}

func (f Following) request(core rest.Interface, o metav1.ListOptions) *rest.Request {
	o.FieldSelector, o.LabelSelector = f.Fields, f.Labels
	request := core.Get().Resource(f.Resource).VersionedParams(&o, metav1.ParameterCodec).MaxRetries(0)
	if f.Accept != "" {
		request.SetHeader("Accept", f.Accept)
	}
	return request
}

func (f Following) watch(ctx context.Context, core rest.Interface, o metav1.ListOptions, said *Complaint) (watch.Interface, error) {
	o.Watch = true
	var lasts time.Duration
	if o.TimeoutSeconds != nil {
		lasts = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, lasts+watchGrace)
	inner, err := f.request(core, o).Timeout(lasts).Watch(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &stream{inner: inner, cancel: cancel, events: make(chan watch.Event)}
	go s.run(ctx, said)
	return s, nil
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
