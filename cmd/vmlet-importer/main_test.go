package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmlet/vmlet/launch"
)

// TestRun: the program says that the claim is filled when it is, and else why not.
func TestRun(t *testing.T) {
	folder, said := t.TempDir(), filepath.Join(t.TempDir(), "said")
	if err := os.WriteFile(said, nil, 0o666); err != nil { // the kubelet makes it
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		what   launch.Import
		code   int
		faults string
		said   string
	}{
		"filled":  {launch.Import{ID: "uid", Folder: folder, Size: 8 << 20}, 0, "", `{"imported":"uid"}`},
		"missing": {launch.Import{ID: "uid", Folder: filepath.Join(folder, "none"), Size: 8 << 20}, exitFailed, "no such file", ""},
	} {
		if err := os.Truncate(said, 0); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(c.what)
		if err != nil {
			t.Fatal(err)
		}
		var out, faults bytes.Buffer
		if code := run([]string{"--listen", "127.0.0.1:0", "--termination-log", said, string(text)}, &out, &faults); code != c.code {
			t.Errorf("%s: code %d, want %d: %s", name, code, c.code, &faults)
		}
		if !strings.Contains(faults.String(), c.faults) {
			t.Errorf("%s: it says %q, want %q in it", name, &faults, c.faults)
		}
		if got, err := os.ReadFile(said); err != nil || string(got) != c.said {
			t.Errorf("%s: the kubelet is told %q, %v, want %q", name, got, err, c.said)
		}
	}
}

// TestBadArguments: the program ends before it does anything.
func TestBadArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "name the import"},
		{[]string{"{"}, "the import: "},
		{[]string{"{}", "{}"}, "name the import"},
		{[]string{"--unknown"}, "--unknown"},
	} {
		var out, faults bytes.Buffer
		if code := run(c.args, &out, &faults); code != exitUsage || !strings.Contains(strings.ReplaceAll(faults.String(), " -unknown", " --unknown"), c.want) {
			t.Errorf("%q: code %d, %q, want %d and %q", c.args, code, &faults, exitUsage, c.want)
		}
	}
}

// strangers connect for as long as they are let in, up to a bound by which it is seen that nothing stops them.
type strangers struct {
	came   atomic.Int64
	closed atomic.Bool
}

func (s *strangers) Accept() (net.Conn, error) {
	if s.closed.Load() || s.came.Load() >= 10*maxConnections {
		return nil, net.ErrClosed
	}
	s.came.Add(1)
	_, server := net.Pipe()
	return server, nil
}

func (s *strangers) Close() error {
	s.closed.Store(true)
	return nil
}

func (*strangers) Addr() net.Addr { return &net.TCPAddr{} }

// TestStrangersConnect: strangers who connect take little of the import's memory, and make room for others when they
// say nothing.
func TestStrangersConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(strangers)
		s := serve(l, http.NotFoundHandler())
		synctest.Wait()
		if came := l.came.Load(); came != maxConnections {
			t.Errorf("%d connections were accepted, want %d", came, maxConnections)
		}
		time.Sleep(time.Minute / 4)
		synctest.Wait()
		if came := l.came.Load(); came != 2*maxConnections {
			t.Errorf("%d connections were accepted after 15 s, want %d", came, 2*maxConnections)
		}
		s.Close()
	})
}
