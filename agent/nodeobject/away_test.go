package nodeobject

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmlet/vmlet/agent/kube"
	"github.com/vmlet/vmlet/test/printed"
)

// knownFacts are a Source's that a test changes.
type knownFacts struct{ *Value[*Facts] }

func (k knownFacts) Facts(context.Context, map[string]string) (Facts, error) {
	now, _ := k.Get()
	return *now, nil
}

func (k knownFacts) Changed() <-chan struct{} {
	_, changed := k.Get()
	return changed
}

// loudness is how much was logged of what somebody should read.
type loudness struct{ printed.Text }

func (l *loudness) lines(with string) (n int) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, with) {
			n++
		}
	}
	return n
}

// agent is all of an agent that has to do with its Node, in a time of its own.
type agent struct {
	*apiServer
	facts     knownFacts
	publisher *Publisher
	watch     *Watch
	said      *loudness
}

// live runs an agent in a time of its own, once the Node is as it should be.
func live(t *testing.T, tokenFile string, test func(*testing.T, *agent)) {
	synctest.Test(t, func(t *testing.T) {
		a := &agent{apiServer: newAPIServer(t), said: &loudness{}}
		end := a.run(tokenFile)
		defer end()
		time.Sleep(15 * time.Second)
		a.wants(t, base(nil))
		test(t, a)
	})
}

// run begins an agent; end ends it.
func (a *agent) run(tokenFile string) (end func()) {
	log := slog.New(slog.NewTextHandler(io.MultiWriter(a.said, a.t.Output()), nil))
	client := a.client(tokenFile)
	a.facts = knownFacts{NewValue(facts(map[string]string{"node.vmlet.io/vmm": "qemu", "kubevirt.io/realtime": "true"}))}
	a.watch = NewWatch(client, log)
	neighbour := NewNeighbour(NeighbourConfig{Watch: a.watch, Log: log})
	events := kube.NewEvents(client, "pod-1", log)
	a.publisher = New(Config{Client: client, Watch: a.watch, Neighbour: neighbour, Source: a.facts, Events: events, Heartbeat: true, Log: log})
	ctx, cancel := context.WithCancel(a.t.Context())
	var all sync.WaitGroup
	for _, run := range []func(context.Context){a.watch.Run, neighbour.Run, events.Run, a.publisher.Run} {
		all.Go(func() { run(ctx) })
	}
	return func() { cancel(); a.stop(); all.Wait() }
}

// labels are the Node's.
func (a *agent) labels() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.node == nil {
		return nil
	}
	return a.node.object().Labels
}

func (a *agent) wants(t *testing.T, want map[string]string) {
	t.Helper()
	if got := a.labels(); !maps.Equal(got, want) {
		t.Fatalf("labels %v, want %v: %+v", got, want, a.publisher.Outcomes())
	}
}

// becomes says that the machine can something else.
func (a *agent) becomes(vmm string) {
	a.facts.Set(facts(map[string]string{"node.vmlet.io/vmm": vmm, "kubevirt.io/realtime": "true"}))
}

// endless is a body that doesn't end.
func endless(w http.ResponseWriter, r *http.Request, each time.Duration, part string) {
	w.Header().Set("Content-Type", "application/json")
	for r.Context().Err() == nil {
		if _, err := io.WriteString(w, part); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		if each > 0 {
			time.Sleep(each)
		}
	}
}

// code answers with an error of the API server's.
func code(number int, reason, after string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		refuseWith(w, number, reason, nil)
		return true
	}
}

// body answers with something.
func body(kind, text string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, text)
		return true
	}
}

// writes of the Node since a time.
func (a *agent) writes(since time.Time) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.asked {
		if !r.at.Before(since) && r.what == "PATCH /api/v1/nodes/n1" {
			n++
		}
	}
	return n
}

// saysOf is how often an event was written.
func (a *agent) saysOf(reason string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.told {
		if r == reason {
			n++
		}
	}
	return n
}

// TestAPIServerFails: for ten minutes it is away, or answers with anything but sense.
// It is asked seldom meanwhile, that is said once, and afterwards the Node is as the
// facts have become, the Lease renewed and what was to be told is told.
func TestAPIServerFails(t *testing.T) {
	t.Parallel()
	type fault = func(http.ResponseWriter, *http.Request) bool
	watches := func(does fault) fault {
		return func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Query().Get("watch") != "" && does(w, r)
		}
	}
	for name, c := range map[string]struct {
		refuse func(context.Context) error
		fault  fault
		// late is how long after its return all is well again; 0: two minutes.
		late time.Duration
		// Writes get through all the same.
		writes bool
	}{
		"refused": {refuse: func(context.Context) error {
			return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}},
		"no route": {refuse: func(context.Context) error {
			return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.EHOSTUNREACH}
		}},
		"nobody there": {refuse: func(ctx context.Context) error { // as client-go's own dialer has it
			select {
			case <-time.After(30 * time.Second):
			case <-ctx.Done():
			}
			return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ETIMEDOUT}
		}},
		"takes requests and is silent": {fault: func(_ http.ResponseWriter, r *http.Request) bool {
			<-r.Context().Done()
			return true
		}, late: 12 * time.Minute},
		"hangs up":               {fault: func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }},
		"401":                    {fault: code(401, "Unauthorized", "")},
		"403":                    {fault: code(403, "Forbidden", ""), late: 6 * time.Minute},
		"404":                    {fault: code(404, "NotFound", ""), late: 6 * time.Minute},
		"410":                    {fault: code(410, "Expired", "")},
		"429":                    {fault: code(429, "TooManyRequests", "")},
		"429, again in a second": {fault: code(429, "TooManyRequests", "1")},
		"429, again at once":     {fault: code(429, "TooManyRequests", "0")},
		"500":                    {fault: code(500, "InternalError", "")},
		"503, again in a second": {fault: code(503, "ServiceUnavailable", "1")},
		"504":                    {fault: code(504, "Timeout", "")},
		"a login page":           {fault: body("text/html", "<html>log in</html>")},
		"no JSON":                {fault: body("application/json", `{"kind": "PartialObject`)},
		"null":                   {fault: body("application/json", "null")},
		"another kind":           {fault: body("application/json", `{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "n1"}}`)},
		"protobuf that is none":  {fault: body("application/vnd.kubernetes.protobuf", "k8s\x00\xff\xff\xff\xff")},
		"a byte a second": {fault: func(w http.ResponseWriter, r *http.Request) bool {
			endless(w, r, time.Second, " ")
			return true
		}, late: 12 * time.Minute},
		"watches that bring one event": {fault: watches(func(w http.ResponseWriter, _ *http.Request) bool {
			sender(w)("MODIFIED", newFakeNode().object())
			return true
		}), writes: true},
		"watches that end": {fault: watches(func(w http.ResponseWriter, _ *http.Request) bool {
			sender(w)
			return true
		}), writes: true},
		"watches that are too old": {fault: watches(func(w http.ResponseWriter, _ *http.Request) bool {
			sender(w)("ERROR", failure(410, "Expired", nil))
			return true
		}), writes: true},
		"watches of garbage": {fault: watches(body("application/json", strings.Repeat("garbage\n", 1000))), writes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live(t, "", func(t *testing.T, a *agent) {
				begin := time.Now()
				a.breaks(c.refuse, c.fault)
				a.change(func(n *fakeNode) { n.set("kubectl", label("kubevirt.io/realtime"), "") })
				a.becomes("cloud-hypervisor")
				time.Sleep(10 * time.Minute)
				all, busiest, kinds := a.since(begin)
				t.Logf("asked %d times, most in a minute %d: %s", all, busiest, kinds)
				if _, later, _ := a.since(begin.Add(3 * time.Minute)); busiest > 100 || later > 60 {
					t.Errorf("asked %d times in a minute, and later %d", busiest, later)
				}
				if n := a.said.lines("level=WARN"); n == 0 && !c.writes || n > 8 {
					t.Errorf("%d warnings", n)
				}
				renewals := a.publisher.Outcomes().LeaseRenewals
				a.stop()
				a.start()
				time.Sleep(max(c.late, 2*time.Minute))
				a.wants(t, base(map[string]string{"node.vmlet.io/vmm": "cloud-hypervisor"}))
				if o := a.publisher.Outcomes(); o.LeaseRenewals == renewals || o.LastError != "" || o.Paused {
					t.Errorf("%+v", o)
				}
			})
		})
	}
}
