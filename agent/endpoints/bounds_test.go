package endpoints

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// TestConnectionsAreBounded: whoever comes in any number is served, but not all at once.
func TestConnectionsAreBounded(t *testing.T) {
	var now, most atomic.Int64
	var once sync.Once
	full := make(chan struct{})
	at := serve(t, Config{Metrics: MetricsConfig{Address: here}}, Handlers{Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n == maxConnections {
			once.Do(func() { close(full) }) // from then on nobody waits
		}
		<-full
		io.WriteString(w, "metrics")
	})})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var clients sync.WaitGroup
	for range 3 * maxConnections {
		clients.Go(func() {
			r, err := client.Get("http://" + at["metrics"] + "/metrics")
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Body.Close()
			if text, err := io.ReadAll(r.Body); err != nil || string(text) != "metrics" {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
	clients.Wait()
	if most.Load() != maxConnections {
		t.Errorf("%d were served at once, want %d", most.Load(), maxConnections)
	}
}
