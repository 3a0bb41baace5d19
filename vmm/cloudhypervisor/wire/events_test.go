package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

func TestFrames(t *testing.T) {
	sent := []wire.Frame{
		{State: &wire.State{Panicked: true}},
		{Event: &wire.Event{Time: time.Unix(1, 5).UTC(), Source: "vm", Name: "paused"}},
		{Event: &wire.Event{Time: time.Unix(2, 0).UTC(), Source: "guest", Name: "panic", Properties: json.RawMessage(`{"event":"panic"}`)}},
		{State: &wire.State{Dropped: 7}},
	}
	var stream bytes.Buffer
	for _, f := range sent {
		line, err := f.Line()
		if err != nil || bytes.IndexByte(line, '\n') != len(line)-1 {
			t.Fatalf("%+v: %q, %v", f, line, err)
		}
		stream.Write(line)
	}
	frames := wire.NewFrames(&stream)
	for _, want := range sent {
		if got, err := frames.Next(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	if _, err := frames.Next(); err != io.EOF {
		t.Error(err)
	}
}

func TestFrameTooLong(t *testing.T) {
	for n, want := range map[int]bool{wire.MaxFrame - 200: true, wire.MaxFrame: false} {
		name := strings.Repeat("x", n)
		line, err := wire.Frame{Event: &wire.Event{Source: "vm", Name: name}}.Line()
		if (err == nil) != want {
			t.Errorf("%d: %v", n, err)
		}
		if _, err = wire.NewFrames(bytes.NewReader(line)).Next(); (err == nil) != want {
			t.Errorf("%d: %v", n, err)
		}
	}
}

func FuzzFrames(f *testing.F) {
	for _, text := range []string{`{"event":{"source":"vm","name":"x"}}`, `{"state":{"dropped":1}}`, `{}`, "null\n[]", `{"state":{},"event":{}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		frames := wire.NewFrames(bytes.NewReader(text))
		for range len(text) + 1 {
			frame, err := frames.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil && (frame.Event == nil) == (frame.State == nil) {
				t.Fatalf("%+v", frame)
			}
		}
	})
}

func TestStateFollowsEvents(t *testing.T) {
	panicked, tried := false, false
	for _, c := range []struct {
		source, name, properties string
		panicked, tried          bool
	}{
		{"vmm", "starting", "", false, false},
		{"vm", "booting", "", false, true},
		{"vm", "booted", "", false, true},
		{"guest", "panic", `{"event":"crash_loaded"}`, false, true},
		{"vm", "panic", `{"event":"panic"}`, false, true},
		{"guest", "panic", `{"event":"panic"}`, true, true},
		{"guest", "panic", `{"event":"crash_loaded"}`, true, true},
		{"vm", "paused", "", true, true},
		{"vmm", "rebooted", "", true, true},
		{"vm", "rebooting", "", true, true},
		{"vm", "rebooted", "", false, true},
		{"guest", "panic", `{"event":7}`, false, true},
		{"guest", "panic", `[]`, false, true},
	} {
		e := (&wire.Event{Source: c.source, Name: c.name, Properties: json.RawMessage(c.properties)}).AsTold()
		panicked, tried = wire.Panicked(panicked, e), wire.BootTried(tried, e)
		if panicked != c.panicked || tried != c.tried {
			t.Errorf("%s/%s %s: panicked %t, tried %t", c.source, c.name, c.properties, panicked, tried)
		}
	}
}
