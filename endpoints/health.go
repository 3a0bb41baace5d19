package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// checkPatience is how long a check may take: less than the 5 s that the kubelet's probes
// wait (deploy/base/daemonset.yaml), and enough for a node whose processors are all busy.
const checkPatience = 4 * time.Second

// Check is one thing that must be so. Look returns why it isn't.
type Check struct {
	Name string
	Look func(ctx context.Context) error
	// Degraded is a check whose failure is reported, and fails nothing.
	Degraded bool
}

// errHangs is what a check has that gives no answer.
var errHangs = errors.New("it gives no answer")

// Checks are looked at together. They may be used concurrently.
type Checks struct {
	name string
	all  []*oneCheck
	log  *slog.Logger
}

// oneCheck is looked at by one goroutine at a time: one that hangs costs no more.
type oneCheck struct {
	Check
	mu      sync.Mutex
	looking chan struct{} // closed when the look under way has ended; nil: there is none
	last    error
	told    string // what was logged of it
}

// NewChecks are checks under a name, such as "healthz".
func NewChecks(name string, log *slog.Logger, checks ...Check) *Checks {
	c := &Checks{name: name, log: log}
	for _, check := range checks {
		c.all = append(c.all, &oneCheck{Check: check})
	}
	return c
}

// Result of a check; Err is nil if all is well.
type Result struct {
	Name     string
	Err      error
	Degraded bool
}

// Look looks at all of them, and waits for none for long.
func (c *Checks) Look(ctx context.Context) []Result {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	results := make([]Result, len(c.all))
	var all sync.WaitGroup
	for i, check := range c.all {
		all.Go(func() { results[i] = Result{check.Name, check.look(ctx), check.Degraded} })
	}
	all.Wait()
	for i, check := range c.all {
		check.tell(c, results[i].Err)
	}
	return results
}

func (o *oneCheck) look(ctx context.Context) error {
	o.mu.Lock()
	looking := o.looking
	if looking == nil {
		looking = make(chan struct{})
		o.looking = looking
		go o.begin(looking)
	}
	o.mu.Unlock()
	select {
	case <-looking:
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.last
	case <-ctx.Done():
		return errHangs
	}
}

func (o *oneCheck) begin(looking chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), checkPatience)
	defer cancel()
	err := o.Look(ctx)
	o.mu.Lock()
	o.last, o.looking = err, nil
	o.mu.Unlock()
	close(looking)
}

// tell logs what has changed. The answer itself does not say why: anybody may
// have it.
func (o *oneCheck) tell(c *Checks, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	o.mu.Lock()
	before := o.told
	o.told = text
	o.mu.Unlock()
	switch {
	case text == before:
	case text == "":
		c.log.Info("a check passes again", "endpoint", c.name, "check", o.Name)
	case o.Degraded:
		c.log.Warn("a check fails, and the probe passes", "endpoint", c.name, "check", o.Name, "error", err)
	default:
		c.log.Warn("a check fails", "endpoint", c.name, "check", o.Name, "error", err)
	}
}

// ServeHTTP answers as Kubernetes' components do: 200 and ok, or 500 and which
// checks failed; with ?verbose all of them; ?exclude=NAME leaves one out.
func (c *Checks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	excluded := query["exclude"]
	var b strings.Builder
	failed := false
	for _, result := range c.Look(r.Context()) {
		switch {
		case slices.Contains(excluded, result.Name):
			fmt.Fprintf(&b, "[+]%s excluded: ok\n", result.Name)
		case result.Err != nil && result.Degraded:
			fmt.Fprintf(&b, "[~]%s degraded: the log says why\n", result.Name)
		case result.Err != nil:
			failed = true
			fmt.Fprintf(&b, "[-]%s failed: the log says why\n", result.Name)
		default:
			fmt.Fprintf(&b, "[+]%s ok\n", result.Name)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	_, verbose := query["verbose"]
	switch {
	case failed:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "%s%s check failed\n", b.String(), c.name)
	case verbose:
		fmt.Fprintf(w, "%s%s check passed\n", b.String(), c.name)
	default:
		fmt.Fprint(w, "ok")
	}
}

// Health answers /healthz and /readyz.
func Health(live, ready *Checks) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", live)
	mux.Handle("GET /readyz", ready)
	return mux
}

// told is a Result for people.
type told struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Degraded bool   `json:"degraded,omitempty"`
	Why      string `json:"why,omitempty"`
}

// reasons answers with all checks and why they fail, as JSON.
func reasons(groups ...*Checks) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		all := make(map[string][]told)
		for _, g := range groups {
			for _, result := range g.Look(r.Context()) {
				t := told{Name: result.Name, OK: result.Err == nil}
				if result.Err != nil {
					t.Why, t.Degraded = result.Err.Error(), result.Degraded
				}
				all[g.name] = append(all[g.name], t)
			}
		}
		writeJSON(w, all)
	}
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(value) // who asked has gone
}
