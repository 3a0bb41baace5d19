package endpoints

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestConnectionsAreBounded: whoever comes in any number is served, but not all at once.
func TestConnectionsAreBounded(t *testing.T) {
	bounded(t, maxConnections, 3*maxConnections, func(h http.Handler) string {
		return serve(t, Config{Health: AddressConfig{here}}, Handlers{Health: h})["health"]
	})
}

// TestScrapesAreBounded: fewer are answered at once than there may be connections.
func TestScrapesAreBounded(t *testing.T) {
	bounded(t, maxScrapes, maxConnections, func(h http.Handler) string {
		return serve(t, Config{Metrics: MetricsConfig{Address: here}}, Handlers{Metrics: h})["metrics"]
	})
}

// bounded has clients come at once, of which a handler sees no more than a number.
func bounded(t *testing.T, want int64, clientsAtOnce int, listen func(http.Handler) string) {
	var now, most atomic.Int64
	full, written := make(chan struct{}), make(chan struct{}, clientsAtOnce)
	at := listen(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-full
		io.WriteString(w, "metrics")
	}))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { written <- struct{}{} }})
	var clients sync.WaitGroup
	for range clientsAtOnce {
		clients.Go(func() {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/metrics", nil)
			if err != nil {
				t.Error(err)
				return
			}
			r, err := client.Do(request)
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
	for range clientsAtOnce {
		<-written
	}
	for now.Load() < want {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond) // in which one more would be served, if any could
	close(full)
	clients.Wait()
	if most.Load() != want {
		t.Errorf("%d were served at once, want %d", most.Load(), want)
	}
}
