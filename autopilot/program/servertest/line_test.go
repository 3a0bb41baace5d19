package servertest

import (
	"io"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// spied is a configuration whose patches of a resource call a function first, with the object's name.
func spied(config *rest.Config, of string, patch func(object string)) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return spy(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/"+of+"/") {
				patch(path.Base(r.URL.Path))
			}
			return next.RoundTrip(r)
		})
	})
	return config
}

type spy func(*http.Request) (*http.Response, error)

func (s spy) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

// line leads to a server, and can be cut.
type line struct {
	net.Listener
	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
}

func listen(t *testing.T, to string) *line {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	one := &line{Listener: l, conns: make(map[net.Conn]bool)}
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go one.join(from, to)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		one.cut(true)
	})
	return one
}

func (l *line) join(from net.Conn, address string) {
	to, err := net.Dial("tcp", address)
	if err != nil || !l.keep(from, to) {
		_ = from.Close()
		return
	}
	go func() {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}()
	_, _ = io.Copy(from, to)
	_ = from.Close()
}

// keep reports false, and closes them, while the line is cut.
func (l *line) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		if l.down {
			_ = c.Close()
		} else {
			l.conns[c] = true
		}
	}
	return !l.down
}

func (l *line) cut(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down = down; down {
		for c := range l.conns {
			_ = c.Close()
		}
		clear(l.conns)
	}
}
