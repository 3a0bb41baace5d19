// Package debug serves what the autopilot would do, on the loopback: it asks the cluster again for
// each page, so that replicas that don't lead have it, too. Start reading at Pages.
package debug

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/evaluate"
	"github.com/vmlet/vmlet/autopilot/facts"
	"github.com/vmlet/vmlet/autopilot/report"
)

// patience bounds a page.
const patience = 30 * time.Second

// Pages are below /debug.
type Pages struct {
	Catalog *catalog.Catalog
	Look    evaluate.Evaluator
	// Facts reads those of the cluster.
	Facts func(ctx context.Context) (facts.Facts, error)
}

// Handler answers. Only GET is allowed.
func (p Pages) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/render", func(w http.ResponseWriter, r *http.Request) { p.render(w, r, p.Catalog.Assets) })
	mux.HandleFunc("GET /debug/render/{asset}", func(w http.ResponseWriter, r *http.Request) {
		a := p.Catalog.Named(r.PathValue("asset"))
		if a == nil {
			http.Error(w, fmt.Sprintf("there is no asset %.63q: /debug/render?show-excluded=true has all", r.PathValue("asset")), http.StatusNotFound)
			return
		}
		p.render(w, r, []*catalog.Asset{a})
	})
	mux.HandleFunc("GET /debug/exclusions", p.exclusions)
	mux.HandleFunc("GET /debug/tombstones", p.tombstones)
	mux.HandleFunc("GET /debug/health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "OK") })
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// rows are assets as they are decided about now. It answers itself, and reports false, if that
// can't be said.
func (p Pages) rows(w http.ResponseWriter, r *http.Request, assets []*catalog.Asset) ([]report.Row, bool) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	f, err := p.Facts(ctx)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return nil, false
	}
	return report.Rows(ctx, assets, f, p.Look), true
}

// render answers in YAML, or with ?format=json. ?show-excluded=true has all assets; one that is
// asked for by its name is always shown.
func (p Pages) render(w http.ResponseWriter, r *http.Request, assets []*catalog.Asset) {
	format := r.URL.Query().Get("format")
	if format == "" {
		format = report.YAML
	}
	if format != report.YAML && format != report.JSON {
		http.Error(w, fmt.Sprintf("format: %.20q: choose yaml or json", format), http.StatusBadRequest)
		return
	}
	rows, ok := p.rows(w, r, assets)
	if !ok {
		return
	}
	var out bytes.Buffer
	if err := report.Write(&out, format, rows, len(assets) == 1 || r.URL.Query().Get("show-excluded") == "true"); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", map[string]string{report.YAML: "application/x-yaml", report.JSON: "application/json"}[format])
	_, _ = w.Write(out.Bytes())
}

// exclusion is an asset that is not applied.
type exclusion struct {
	Asset     string        `json:"asset"`
	Path      string        `json:"path"`
	Component string        `json:"component"`
	Status    report.Status `json:"status"`
	Reason    string        `json:"reason"`
}

func (p Pages) exclusions(w http.ResponseWriter, r *http.Request) {
	rows, ok := p.rows(w, r, p.Catalog.Assets)
	if !ok {
		return
	}
	all := []exclusion{}
	for _, row := range rows {
		if row.Status != report.Included {
			all = append(all, exclusion{row.Asset, row.Path, row.Component, row.Status, row.Reason})
		}
	}
	writeJSON(w, all)
}

// grave is a tombstone.
type grave struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Path      string `json:"path"`
}

func (p Pages) tombstones(w http.ResponseWriter, _ *http.Request) {
	all := []grave{}
	for _, t := range p.Catalog.Tombstones {
		all = append(all, grave{t.Object.GetKind(), t.Object.GetName(), t.Object.GetNamespace(), t.Path})
	}
	writeJSON(w, all)
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(value)
}
