package endpoints

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestConnectionsAreBounded: whoever holds as many connections as there may be, and opens more, loses his own,
// and the kubelet's probe is answered beside him.
func TestConnectionsAreBounded(t *testing.T) {
	held := make(chan struct{}, 2*maxConnections)
	at := serve(t, Config{Health: AddressConfig{here}}, Handlers{Health: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			held <- struct{}{}
			<-r.Context().Done()
		}
	})})["health"]
	stranger := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	var conns []net.Conn
	for range maxConnections + 1 {
		c, err := stranger.DialContext(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, "GET /held HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for range maxConnections {
		<-held
	}
	probe := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	if code, _ := get(t, probe, "http://"+at+"/healthz"); code != http.StatusOK {
		t.Errorf("the probe is answered %d beside a stranger's %d connections, want 200", code, len(conns))
	}
	if _, err := io.ReadAll(conns[0]); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the stranger's oldest connection: %v, want it closed", err)
	}
}

// TestScrapesAreBounded: fewer are answered at once than there may be connections.
func TestScrapesAreBounded(t *testing.T) {
	const want, clientsAtOnce = maxScrapes, maxConnections
	var now, most atomic.Int64
	full, written := make(chan struct{}), make(chan struct{}, clientsAtOnce)
	scraped := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-full
		io.WriteString(w, "metrics")
	})
	at := serve(t, Config{Metrics: MetricsConfig{Address: here}}, Handlers{Metrics: scraped})["metrics"]
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
