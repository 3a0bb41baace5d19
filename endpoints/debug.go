package endpoints

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/pprof"
	"slices"
)

// Labels are the node's, and what they would say could not be asked.
type Labels struct {
	Labels  map[string]string `json:"labels"`
	Unknown []UnknownFact     `json:"unknown,omitempty"`
}

// UnknownFact is one that labels depend on, and why it is not known.
type UnknownFact struct {
	Fact   string `json:"fact"`
	Reason string `json:"reason"`
}

// Pages are what the debug pages show. Anybody on the machine may ask for them:
// they have nothing of a VM's specification.
type Pages struct {
	// Labels as the node should have them now; nil: the program is of no node.
	Labels func(ctx context.Context) (Labels, error)
	// VMs are those of the program, to be shown as JSON; nil: it has none.
	VMs func() any
	// Live and Ready are the checks of healthz and readyz.
	Live, Ready *Checks
}

// Debug answers below /debug.
func Debug(p Pages) http.Handler {
	mux := http.NewServeMux()
	if p.Labels != nil {
		mux.HandleFunc("GET /debug/render/labels", p.labels)
	}
	if p.VMs != nil {
		mux.HandleFunc("GET /debug/vms", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, p.VMs()) })
	}
	mux.HandleFunc("GET /debug/health", reasons(p.Live, p.Ready))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// labels are lines of KEY=VALUE, or JSON with ?output=json.
func (p Pages) labels(w http.ResponseWriter, r *http.Request) {
	l, err := p.Labels(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	switch output := r.URL.Query().Get("output"); output {
	case "json":
		writeJSON(w, l)
	case "", "text":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		for _, key := range slices.Sorted(maps.Keys(l.Labels)) {
			fmt.Fprintf(w, "%s=%s\n", key, l.Labels[key])
		}
		for _, u := range l.Unknown {
			fmt.Fprintf(w, "# not known: %s: %s\n", u.Fact, u.Reason)
		}
	default:
		http.Error(w, fmt.Sprintf("output: %.40q: choose text or json", output), http.StatusBadRequest)
	}
}
