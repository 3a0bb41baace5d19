package program

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/vmlet/vmlet/endpoints"
)

// TestMetricsForSome: whoever has no token is told nothing where metrics are for some alone.
func TestMetricsForSome(t *testing.T) {
	for authentication, want := range map[string]int{endpoints.AuthenticationNone: http.StatusOK, endpoints.AuthenticationToken: http.StatusUnauthorized} {
		o := Options{Config: &rest.Config{Host: "127.0.0.1:1"}, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)}
		o.Endpoints.Metrics.Authentication = authentication
		all, err := o.metrics()
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		if all.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil)); w.Code != want {
			t.Errorf("%s: a stranger is answered %d, want %d", authentication, w.Code, want)
		}
	}
}
