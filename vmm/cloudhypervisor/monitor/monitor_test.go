package monitor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// fakeVMM answers vm.info with a state, and has its driver say what a test wants.
type fakeVMM struct {
	t     *testing.T
	info  chapi.Info
	lines chan string
}

func (f *fakeVMM) dial(ctx context.Context, name string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if name == wire.EventsSocket {
			for line := range f.lines {
				io.WriteString(theirs, line+"\n")
			}
			return
		}
		if _, err := http.ReadRequest(bufio.NewReader(theirs)); err != nil {
			return
		}
		body, err := json.Marshal(f.info)
		if err != nil {
			f.t.Error(err)
		}
		fmt.Fprintf(theirs, "HTTP/1.1 200 \r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}()
	return ours, nil
}

func TestConnectRefuses(t *testing.T) {
	for line, want := range map[string]string{
		`{"event":{"source":"vm","name":"booted"}}`: "begins with an event",
		`{}`:                     "want an event or a state",
		`what`:                   "invalid character",
		strings.Repeat(" ", 1e6): "token too long",
	} {
		f := &fakeVMM{t: t, lines: make(chan string, 1)}
		f.lines <- line
		close(f.lines)
		if _, err := Connect(t.Context(), f.dial, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v", line, err)
		}
	}
	f := &fakeVMM{t: t, lines: make(chan string)}
	defer close(f.lines)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Connect(ctx, f.dial, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	gone := func(context.Context, string) (net.Conn, error) { return nil, os.ErrNotExist }
	if _, err := Connect(t.Context(), gone, nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), wire.EventsSocket) {
		t.Error(err)
	}
}

// TestEvents: what each line means, and what is made up for those that were dropped.
func TestEvents(t *testing.T) {
	f := &fakeVMM{t: t, lines: make(chan string, 1), info: chapi.Info{State: chapi.StatePaused}}
	defer close(f.lines)
	f.lines <- `{"state":{"panicked":true}}`
	m, err := Connect(t.Context(), f.dial, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	type meant struct {
		name    string
		change  vmm.Change
		dropped int
	}
	for _, c := range []struct {
		line     string
		want     []meant
		panicked bool
	}{
		{`{"event":{"source":"vm","name":"rebooting"}}`, []meant{{"vm/rebooting", vmm.ChangeNone, 0}}, true},
		{`{"event":{"source":"vm","name":"rebooted"}}`, []meant{{"vm/rebooted", vmm.ChangeReset, 0}}, false},
		{`{"event":{"source":"guest","name":"panic","properties":{"event":"crash_loaded"}}}`, []meant{{"guest/panic", vmm.ChangeNone, 0}}, false},
		{`{"event":{"source":"guest","name":"panic","properties":{"event":"panic"}}}`, []meant{{"guest/panic", vmm.ChangePanicked, 0}}, true},
		{`{"state":{"dropped":3}}`, []meant{{"vm/rebooted", vmm.ChangeReset, 3}, {"vm/paused", vmm.ChangePaused, 0}}, false},
		{`{"state":{"dropped":4}}`, []meant{{"vm/paused", vmm.ChangePaused, 4}}, false},
		{`{"state":{"dropped":-1,"panicked":true}}`, []meant{{"guest/panic", vmm.ChangePanicked, 0}}, true},
		{`{"event":{"source":"virtio-device","name":"activated"}}` + "\n" + `{"event":{"source":"vm","name":"resumed"}}`, []meant{{"vm/resumed", vmm.ChangeResumed, 0}}, true},
		{`{"event":{"source":"vmm","name":"paused"}}`, []meant{{"vmm/paused", vmm.ChangeNone, 0}}, true},
		{`{"event":{"source":"vm","name":"booted"}}`, []meant{{"vm/booted", vmm.ChangeResumed, 0}}, false},
	} {
		f.lines <- c.line
		for _, want := range c.want {
			if e := <-m.Events(); (meant{e.Name, e.Change, e.Dropped}) != want {
				t.Errorf("%s: %+v, want %+v", c.line, e, want)
			}
		}
		if s, err := m.Status(t.Context()); err != nil || s.Panicked != c.panicked || s.Running {
			t.Errorf("%s: %+v, %v", c.line, s, err)
		}
	}
	f.lines <- "garbage"
	if e, ok := <-m.Events(); ok {
		t.Errorf("%+v", e)
	}
}

func TestDiskSamples(t *testing.T) {
	n := func(n uint64) *uint64 { return &n }
	got := diskSamples(chapi.Counters{
		"disk10": {"read_ops": 1, "write_ops": chapi.Unmeasured, "read_bytes": math.MaxInt64},
		"disk2":  {},
		"disk02": {"read_ops": 9}, "disk-1": {}, "disk": {}, "disk99999": {}, "seed": {"read_ops": 1}, "net0": {}, "_disk0": {},
	})
	want := []vmm.DiskSample{{Index: 2}, {Index: 10, Reads: n(1), ReadBytes: n(math.MaxInt64)}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}
