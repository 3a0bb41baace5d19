package kube

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"

	"golang.org/x/time/rate"
)

// Bounds of the events that an agent writes. They are kept by the API server for
// an hour by default, and are for people.
const (
	eventsAtOnce  = 20
	eventsEach    = 30 * time.Second // one more
	eventsWaiting = 64               // while the API server can't be reached
	eventRepeat   = 10 * time.Minute // until the same event is written again
	eventsKnown   = 256              // how many events are remembered for that
	eventTimeout  = 30 * time.Second
	maxEventText  = 1024 // what the API server takes of a message, in bytes
)

// Events writes Kubernetes events, few: the same one is not written twice in ten
// minutes, and no more than a burst of 20 and then two a minute. Its methods may
// be called concurrently and never wait.
type Events struct {
	client   *Client
	log      *slog.Logger
	instance string
	now      func() time.Time

	queue   chan *corev1.Event
	dropped atomic.Uint64

	mu     sync.Mutex
	bound  *rate.Limiter
	before map[string]time.Time // when each event was last written
}

// NewEvents makes one that writes while Run runs. instance is the reporting one of
// the controller's instances: the pod's name.
func NewEvents(client *Client, instance string, log *slog.Logger) *Events {
	return &Events{
		client: client, log: log, instance: instance, now: time.Now, queue: make(chan *corev1.Event, eventsWaiting),
		bound: rate.NewLimiter(rate.Every(eventsEach), eventsAtOnce), before: map[string]time.Time{},
	}
}

// Dropped is how many events were not written: too many, or the API server could
// not be reached for too long or refused them.
func (e *Events) Dropped() uint64 { return e.dropped.Load() }

// Event queues an event about an object: kind is corev1.EventTypeNormal or
// EventTypeWarning, reason a word in CamelCase, and text a sentence that says what
// to do. On a nil Events it does nothing.
func (e *Events) Event(about corev1.ObjectReference, kind, reason, text string) {
	if e == nil {
		return
	}
	text = strings.ToValidUTF8(text, "?")
	if len(text) > maxEventText {
		text = strings.ToValidUTF8(text[:maxEventText-3], "") + "..."
	}
	if !e.due(fmt.Sprint(about.Kind, about.Namespace, about.Name, about.UID, reason, text)) {
		return
	}
	select {
	case e.queue <- e.object(about, kind, reason, text):
	default:
		e.dropped.Add(1)
	}
}

// due reports whether an event may be written.
func (e *Events) due(what string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	if at, told := e.before[what]; told && now.Sub(at) < eventRepeat {
		return false
	}
	if !e.bound.AllowN(now, 1) {
		e.dropped.Add(1)
		return false
	}
	for old, at := range e.before {
		if now.Sub(at) >= eventRepeat || len(e.before) >= eventsKnown {
			delete(e.before, old)
		}
	}
	e.before[what] = now
	return true
}

func (e *Events) object(about corev1.ObjectReference, kind, reason, text string) *corev1.Event {
	namespace := about.Namespace
	if namespace == "" { // where events about what is in no namespace belong
		namespace = metav1.NamespaceDefault
	}
	now := metav1.NewTime(e.now())
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: eventName(about.Name, now.Time)},
		InvolvedObject: about, Type: kind, Reason: reason, Message: text,
		Source:         corev1.EventSource{Component: FieldManager, Host: e.client.Node()},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		ReportingController: "vmlet.io/agent", ReportingInstance: e.instance,
	}
}

// eventName is as client-go makes it: of the object's name, as far as there is
// room, and the time.
func eventName(about string, now time.Time) string {
	moment := fmt.Sprintf(".%x", now.UnixNano())
	if room := validation.DNS1123SubdomainMaxLength - len(moment); len(about) > room {
		about = strings.TrimRight(about[:room], "-.")
	}
	return about + moment
}

// Run writes the queued events until ctx ends.
func (e *Events) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-e.queue:
			e.write(ctx, event)
		}
	}
}

// write goes on until the API server has it, or doesn't want it.
func (e *Events) write(ctx context.Context, event *corev1.Event) {
	patience := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 30, Cap: time.Minute}
	for {
		err := e.post(ctx, event)
		switch {
		case err == nil || apierrors.IsAlreadyExists(err) || ctx.Err() != nil:
			return
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err):
			e.dropped.Add(1)
			e.log.Warn("an event can't be written", "reason", event.Reason, "event", event.Message, "error", err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(patience.Step()):
		}
	}
}

func (e *Events) post(ctx context.Context, event *corev1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	return e.client.Core().Post().Namespace(event.Namespace).Resource("events").MaxRetries(0).Body(event).Do(ctx).Error()
}
