package chapi_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

const twoEvents = `{
  "timestamp": {
    "secs": 3,
    "nanos": 250000000
  },
  "source": "vm",
  "event": "booted",
  "properties": null
}

{
  "timestamp": {
    "secs": 4,
    "nanos": 0
  },
  "source": "vm",
  "event": "device-removed",
  "properties": {
    "id": "disk1",
    "bdf": "0000:00:06.0"
  },
  "severity": "none"
}

`

func TestEvents(t *testing.T) {
	for name, r := range map[string]io.Reader{
		"at once":    strings.NewReader(twoEvents),
		"by byte":    iotest.OneByteReader(strings.NewReader(twoEvents)),
		"with EOF":   iotest.DataErrReader(strings.NewReader(twoEvents)),
		"no newline": strings.NewReader(strings.TrimSpace(twoEvents)),
	} {
		t.Run(name, func(t *testing.T) {
			events := chapi.NewEvents(r, 300) // less than both, more than each
			first, err := events.Next()
			if err != nil || first.Since != 3250*time.Millisecond || first.Source != chapi.SourceVM || first.Name != chapi.EventBooted || first.Properties != nil || first.Property("id") != "" {
				t.Errorf("%+v, %v", first, err)
			}
			second, err := events.Next()
			if err != nil || second.Name != chapi.EventDeviceRemoved || second.Property("id") != "disk1" || second.Property("none") != "" {
				t.Errorf("%+v, %v", second, err)
			}
			for range 2 {
				if _, err := events.Next(); err != io.EOF {
					t.Errorf("%v, want io.EOF", err)
				}
			}
		})
	}
}

// TestEventsMany: the bound is on each event and not on the stream.
func TestEventsMany(t *testing.T) {
	events := chapi.NewEvents(strings.NewReader(strings.Repeat(twoEvents, 1000)), 300)
	n := 0
	for {
		_, err := events.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 2000 {
		t.Errorf("%d events, want 2000", n)
	}
}

// endless repeats its bytes for ever and counts what was read.
type endless struct {
	bytes []byte
	read  int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.bytes[(e.read+i)%len(e.bytes)]
	}
	e.read += len(p)
	return len(p), nil
}

// TestEventsBad: what is no event ends the stream, for good.
func TestEventsBad(t *testing.T) {
	const head = `{"timestamp":{"secs":1,"nanos":1},"source":"vm","event":`
	for name, c := range map[string]struct {
		stream io.Reader
		want   error
	}{
		"garbage":         {strings.NewReader("booted\n"), chapi.ErrProtocol},
		"zeros":           {&endless{bytes: []byte{0}}, chapi.ErrProtocol},
		"array":           {strings.NewReader("[]"), chapi.ErrProtocol},
		"null":            {strings.NewReader("null"), chapi.ErrProtocol},
		"no timestamp":    {strings.NewReader(`{"source":"vm","event":"booted"}`), chapi.ErrProtocol},
		"no name":         {strings.NewReader(head + `""}`), chapi.ErrProtocol},
		"a number's name": {strings.NewReader(head + `1}`), chapi.ErrProtocol},
		"before start":    {strings.NewReader(`{"timestamp":{"secs":-1,"nanos":1},"source":"vm","event":"x"}`), chapi.ErrProtocol},
		"end of time":     {strings.NewReader(`{"timestamp":{"secs":18446744073709551615,"nanos":0},"source":"vm","event":"x"}`), chapi.ErrProtocol},
		"long nanosecond": {strings.NewReader(`{"timestamp":{"secs":1,"nanos":1000000000},"source":"vm","event":"x"}`), chapi.ErrProtocol},
		"cut":             {strings.NewReader(head), chapi.ErrDisconnected},
		"cut into":        {strings.NewReader(head + "\n\n" + twoEvents), chapi.ErrProtocol},
		"endless string":  {io.MultiReader(strings.NewReader(head+`"`), &endless{bytes: []byte("x")}), chapi.ErrTooLong},
		"endless object":  {io.MultiReader(strings.NewReader(head+`"x"`), &endless{bytes: []byte(`,"a":1`)}), chapi.ErrTooLong},
		"endless depth":   {&endless{bytes: []byte("[")}, chapi.ErrTooLong},
		"endless space":   {&endless{bytes: []byte(" \n")}, chapi.ErrTooLong},
		"reader's error":  {iotest.ErrReader(os.ErrClosed), os.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			events := chapi.NewEvents(c.stream, 1000)
			event, err := events.Next()
			if !errors.Is(err, c.want) {
				t.Errorf("%+v, %v, want %v", event, err, c.want)
			}
			if _, again := events.Next(); again != err {
				t.Errorf("then %v", again)
			}
			if e, ok := c.stream.(*endless); ok && e.read > 1000 {
				t.Errorf("%d bytes were read", e.read)
			}
			t.Log(err)
		})
	}
}

// TestEventsWake: closing the pipe's end wakes a reader.
func TestEventsWake(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	events := chapi.NewEvents(r, chapi.DefaultMaxEvent)
	io.WriteString(w, twoEvents)
	for range 2 {
		if _, err := events.Next(); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error)
	go func() {
		_, err := events.Next()
		ended <- err
	}()
	r.Close()
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

// FuzzEvents: no stream gives an event without its parts or beyond the bound, and
// each ends.
func FuzzEvents(f *testing.F) {
	const bound = 4 << 10
	for _, seed := range []string{
		"", twoEvents, "{}", "[", " ", "null\n", `{"timestamp":{"secs":1,"nanos":2},"source":"guest","event":"panic","properties":{"event":"panic"}}`,
		`{"timestamp":null,"source":"vm","event":"x"}`, `{"timestamp":{"secs":1e3,"nanos":0},"source":"vm","event":"x"}`, strings.Repeat(" ", 2*bound), strings.Repeat("[", 2*bound),
		`{"TIMESTAMP":{"SECS":1,"NANOS":2},"SOURCE":"a","EVENT":"b","properties":[1]}{`, "\xff\xfe", `{"timestamp":{"secs":1,"nanos":2},"source":"\ud800","event":"\u0000"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		events := chapi.NewEvents(bytes.NewReader(data), bound)
		for range len(data) + 1 {
			event, err := events.Next()
			if err != nil {
				if err != io.EOF && !errors.Is(err, chapi.ErrProtocol) && !errors.Is(err, chapi.ErrDisconnected) {
					t.Errorf("%v", err)
				}
				return
			}
			if event.Source == "" || event.Name == "" || event.Since < 0 || len(event.Properties) > bound {
				t.Errorf("%+v", event)
			}
			event.Property("id")
		}
		t.Errorf("%d bytes have more events than that", len(data))
	})
}
