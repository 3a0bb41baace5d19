package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// eventServer takes events in JSON and answers with a code.
func eventServer(t *testing.T, code func(n int64) int) (*Client, chan corev1.Event) {
	t.Helper()
	got := make(chan corev1.Event, 1000)
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := code(n.Add(1))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(answer)
		if answer >= 300 {
			fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": %d, "reason": "%s", "message": "no"}`, answer,
				map[int]string{http.StatusForbidden: "Forbidden", http.StatusInternalServerError: "InternalError"}[answer])
			return
		}
		body, err := io.ReadAll(r.Body)
		var event corev1.Event
		if err == nil {
			err = json.Unmarshal(body, &event)
		}
		if err != nil {
			t.Errorf("%v: %q", err, body)
		}
		got <- event
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	c := &Client{node: NodeName{Name: "n1"}, namespace: "vmlet"}
	jsonOnly := rest.Config{Host: server.URL}
	codecs, err := newCodecs()
	if err != nil {
		t.Fatal(err)
	}
	jsonOnly.ContentType = "application/json"
	jsonOnly.APIPath, jsonOnly.GroupVersion, jsonOnly.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, codecs.WithoutConversion()
	if c.core, err = rest.RESTClientFor(&jsonOnly); err != nil {
		t.Fatal(err)
	}
	return c, got
}

func newTestEvents(t *testing.T, code func(n int64) int) (*Events, chan corev1.Event) {
	c, got := eventServer(t, code)
	return NewEvents(c, "pod-1", slog.New(slog.NewTextHandler(t.Output(), nil))), got
}

func created(int64) int { return http.StatusCreated }

func TestEvents(t *testing.T) {
	e, got := newTestEvents(t, created)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { e.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	e.Event(corev1.ObjectReference{Kind: "Node", Name: "n1", UID: "u1"}, corev1.EventTypeWarning, "Reason", strings.Repeat("x\xffü", 1000))
	e.Event(corev1.ObjectReference{Kind: "Pod", Namespace: "here", Name: "p"}, corev1.EventTypeNormal, "Reason", "text")
	node, pod := <-got, <-got
	if node.Namespace != "default" || node.InvolvedObject.UID != "u1" || node.Type != "Warning" || len(node.Message) > maxEventText || !strings.HasPrefix(node.Message, "x?ü") ||
		node.Source.Host != "n1" || node.ReportingInstance != "pod-1" || node.Count != 1 || node.FirstTimestamp.IsZero() {
		t.Errorf("%+v", node)
	}
	if pod.Namespace != "here" || pod.Message != "text" {
		t.Errorf("%+v", pod)
	}
	if name := eventName(strings.Repeat("a.", 126)+"a", time.Now()); len(name) > 253 || strings.Contains(name, "..") {
		t.Errorf("an event called %s", name)
	}
	var nobody *Events
	nobody.Event(corev1.ObjectReference{}, "", "", "")
}

// The same is told again after ten minutes, and never too much.
func TestEventsAreFew(t *testing.T) {
	e, _ := newTestEvents(t, created)
	clock := time.Unix(1_800_000_000, 0)
	e.now = func() time.Time { return clock }
	tell := func(text string) int {
		before := len(e.queue)
		e.Event(corev1.ObjectReference{Kind: "Node", Name: "n1"}, corev1.EventTypeNormal, "Reason", text)
		return len(e.queue) - before
	}
	if tell("a") != 1 || tell("a") != 0 {
		t.Fatal("the same was told twice")
	}
	clock = clock.Add(eventRepeat)
	if tell("a") != 1 {
		t.Fatal("the same is never told again")
	}
	n := 0
	for i := range 1000 {
		n += tell(fmt.Sprint(i))
	}
	if n != eventsAtOnce-1 || e.Dropped() != uint64(1000-n) || len(e.before) > eventsKnown {
		t.Errorf("%d told, %d not, %d known", n, e.Dropped(), len(e.before))
	}
	for i := range 1000 { // the API server is away for long
		clock = clock.Add(eventsEach)
		tell(fmt.Sprint("later ", i))
	}
	if len(e.queue) != eventsWaiting {
		t.Errorf("%d wait", len(e.queue))
	}
}

// One that fails for now is written later; one that is refused is not.
func TestEventsAreTriedAgain(t *testing.T) {
	e, got := newTestEvents(t, func(n int64) int {
		return map[int64]int{1: http.StatusInternalServerError, 2: http.StatusCreated, 3: http.StatusForbidden}[n]
	})
	e.write(t.Context(), e.object(corev1.ObjectReference{Name: "n1"}, "Normal", "R", "text"))
	if event := <-got; event.Message != "text" {
		t.Errorf("%+v", event)
	}
	e.write(t.Context(), e.object(corev1.ObjectReference{Name: "n1"}, "Normal", "R", "refused"))
	if e.Dropped() != 1 {
		t.Errorf("%d dropped", e.Dropped())
	}
}
