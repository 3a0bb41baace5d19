package qmp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/qmp/qmptest"
)

func TestGreeting(t *testing.T) {
	tests := map[string]struct {
		greeting string
		want     qmp.Greeting
	}{
		"QEMU 7.2": {
			`{"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "Debian 1:7.2"}, "capabilities": ["oob"]}`,
			qmp.Greeting{Version: qmp.Version{Major: 7, Minor: 2, Micro: 22, Package: "Debian 1:7.2"}, Capabilities: []string{"oob"}},
		},
		"a newer one": {
			`{"version": {"qemu": {"micro": 0, "minor": 1, "major": 12}, "package": "", "x": 1}, "capabilities": ["oob", {"name": "y"}, "z"], "w": [2]}`,
			qmp.Greeting{Version: qmp.Version{Major: 12, Minor: 1}, Capabilities: []string{"oob", "z"}},
		},
		"empty": {`{}`, qmp.Greeting{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server, err := qmptest.Start(filepath.Join(t.TempDir(), "monitor"))
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			server.SetGreeting(json.RawMessage(test.greeting))
			got := dial(t, server.Path()).Greeting()
			if raw := strings.ReplaceAll(test.greeting, " ", ""); strings.ReplaceAll(string(got.Raw), " ", "") != raw {
				t.Errorf("Raw = %s, want %s", got.Raw, raw)
			}
			got.Raw = nil
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	tests := map[string]struct {
		greeted bool
		sent    string
		want    error
	}{
		"closed":              {false, "", io.EOF},
		"half a greeting":     {false, `{"QMP": {`, io.ErrUnexpectedEOF},
		"human monitor":       {false, "QEMU 7.2.22 monitor - type 'help' for more information\r\n(qemu) ", qmp.ErrProtocol},
		"not an object":       {false, "[1]\n", qmp.ErrProtocol},
		"wrong greeting":      {false, `{"QMP": {"version": "7.2"}}` + "\n", qmp.ErrProtocol},
		"endless line":        {false, strings.Repeat("x", 20000), qmp.ErrMessageTooLong},
		"closed after it":     {true, "", io.EOF},
		"garbage after it":    {true, "}\n", qmp.ErrProtocol},
		"error without an id": {true, `{"error": {"class": "GenericError", "desc": "JSON parse error"}}` + "\n", qmp.ErrProtocol},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				if test.greeted {
					io.WriteString(far, greetingLine)
					bufio.NewReader(far).ReadBytes('\n')
				}
				io.WriteString(far, test.sent) // the client may end it early
			}()
			client, err := qmp.New(testContext(t), near, qmp.WithMaxMessageSize(10000))
			if err == nil {
				client.Close()
				t.Fatal("New succeeded")
			}
			if !errors.Is(err, test.want) || !errors.Is(err, qmp.ErrDisconnected) {
				t.Errorf("got %q, want it to be %q and %q", err, qmp.ErrDisconnected, test.want)
			}
		})
	}
}

func TestNewEndsWithItsContext(t *testing.T) {
	t.Run("before the greeting", func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			io.WriteString(far, `{"QMP"`)
			cancel()
		}()
		_, err := qmp.New(ctx, near)
		if !errors.Is(err, qmp.ErrNoGreeting) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if _, err := far.Write([]byte("x")); err == nil {
			t.Error("the connection was not closed")
		}
	})
	t.Run("before the reply", func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			io.WriteString(far, greetingLine)
			bufio.NewReader(far).ReadBytes('\n')
			cancel()
		}()
		_, err := qmp.New(ctx, near)
		if !errors.Is(err, context.Canceled) || errors.Is(err, qmp.ErrNoGreeting) {
			t.Errorf("got %v", err)
		}
	})
}

func TestDialFails(t *testing.T) {
	dir := t.TempDir()
	if _, err := qmp.Dial(testContext(t), filepath.Join(dir, "none")); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("no socket: %v", err)
	}
	long := filepath.Join(dir, strings.Repeat("x", 108))
	if _, err := qmp.Dial(testContext(t), long); err == nil || !strings.Contains(err.Error(), "107") {
		t.Errorf("path too long: %v", err)
	}
}

// TestSecondClient: it hears nothing until its deadline, and is served when the
// first one has gone.
func TestSecondClient(t *testing.T) {
	server, client := startServer(t)
	testSecondClient(t, client, server.Path())
}

func TestReplies(t *testing.T) {
	server, client := startServer(t)
	server.Handle("echo", nil, func(r *qmptest.Request) { r.Return(r.Arguments) })
	server.Handle("null", nil, qmptest.Return(json.RawMessage("null")))
	type pair struct{ A, B int }
	tests := map[string]struct {
		command      string
		args, result any
		want         any
	}{
		"struct":         {"echo", pair{1, 2}, new(pair), &pair{1, 2}},
		"unknown member": {"echo", map[string]any{"A": 1, "C": 3}, new(pair), &pair{A: 1}},
		"raw":            {"echo", json.RawMessage("{\n\"x\": [1, \"<&>\"]\n}"), new(json.RawMessage), ptr(json.RawMessage(`{"x":[1,"\u003c\u0026\u003e"]}`))},
		"no arguments":   {"echo", nil, new(json.RawMessage), ptr(json.RawMessage(`{}`))},
		"nil map":        {"echo", map[string]any(nil), new(json.RawMessage), ptr(json.RawMessage(`{}`))},
		"no result":      {"echo", pair{1, 2}, nil, nil},
		"null":           {"null", nil, new(json.RawMessage), ptr(json.RawMessage(`null`))},
		"large number":   {"echo", map[string]uint64{"x": 1<<64 - 1}, new(map[string]uint64), &map[string]uint64{"x": 1<<64 - 1}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if err := client.Execute(testContext(t), test.command, test.args, test.result); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(test.result, test.want) {
				t.Errorf("got %s, want %s", test.result, test.want)
			}
		})
	}
	var n int
	var mismatch *json.UnmarshalTypeError
	if err := client.Execute(testContext(t), "echo", nil, &n); !errors.As(err, &mismatch) {
		t.Errorf("a reply of another type: %v", err)
	}
}

func ptr[T any](v T) *T { return &v }

func TestArgumentsThatAreNone(t *testing.T) {
	_, client := startServer(t)
	for _, args := range []any{1, "x", []int{1}, make(chan int), json.RawMessage(`{"a"`)} {
		if err := client.Execute(testContext(t), "quit", args, nil); !errors.Is(err, qmp.ErrNotSent) {
			t.Errorf("%T: %v", args, err)
		}
	}
}

func TestErrors(t *testing.T) {
	server, client := startServer(t)
	server.Handle("device_del", qmptest.Args{"id": qmptest.Str}, func(r *qmptest.Request) {
		var args struct{ ID string }
		if err := r.Bind(&args); err != nil {
			t.Error(err)
		}
		r.Fail(&qmp.Error{Class: qmp.ErrorClass(args.ID), Desc: "as asked"})
	})
	for _, class := range []qmp.ErrorClass{qmp.GenericError, qmp.CommandNotFound, qmp.DeviceNotActive, qmp.DeviceNotFound, qmp.KVMMissingCap, "FromTheFuture"} {
		err := client.Execute(testContext(t), "device_del", map[string]string{"id": string(class)}, nil)
		want := qmp.Error{Command: "device_del", Class: class, Desc: "as asked"}
		var got *qmp.Error
		if !errors.As(err, &got) || *got != want {
			t.Errorf("got %v, want %v", err, &want)
		}
		if !errors.Is(err, class) || errors.Is(err, qmp.ErrorClass("Other")) || errors.Is(err, qmp.ErrDisconnected) || errors.Is(err, qmp.ErrNotSent) {
			t.Errorf("class %s: errors.Is goes wrong for %v", class, err)
		}
	}
	for command, class := range map[string]qmp.ErrorClass{"no-such": qmp.CommandNotFound, "device_del": qmp.GenericError} {
		if err := client.Execute(testContext(t), command, nil, nil); !errors.Is(err, class) {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// TestRepliesInAnyOrder: calls are matched by id, and calls given up leave the
// others alone.
func TestRepliesInAnyOrder(t *testing.T) {
	server, client := startServer(t)
	const calls = 20
	held := make(chan *qmptest.Request, calls)
	server.Handle("hold", qmptest.Args{"n": qmptest.Int}, func(r *qmptest.Request) { held <- r })
	call := func(ctx context.Context, n int) error {
		var got struct{ N int }
		err := client.Execute(ctx, "hold", map[string]int{"n": n}, &got)
		if err == nil && got.N != n {
			return fmt.Errorf("call %d got the reply of %d", n, got.N)
		}
		return err
	}
	given, giveUp := context.WithCancel(testContext(t))
	errs := make([]error, calls)
	var odd, even sync.WaitGroup
	for n := range calls {
		if n%2 == 0 {
			even.Go(func() { errs[n] = call(testContext(t), n) })
		} else {
			odd.Go(func() { errs[n] = call(given, n) })
		}
	}
	requests := make([]*qmptest.Request, calls)
	for i := range requests {
		requests[i] = <-held
	}
	giveUp()
	odd.Wait()
	for i := calls - 1; i >= 0; i-- {
		requests[i].Return(requests[i].Arguments)
	}
	even.Wait()
	for n, err := range errs {
		if n%2 == 0 && err != nil || n%2 == 1 && (!errors.Is(err, context.Canceled) || errors.Is(err, qmp.ErrNotSent)) {
			t.Errorf("call %d: %v", n, err)
		}
	}
	go func() { r := <-held; r.Return(r.Arguments) }()
	if err := call(testContext(t), 99); err != nil { // after the late replies
		t.Error(err)
	}
}

// TestForeignReplies: replies to an earlier client, and kinds of messages that
// don't exist yet, reach nobody and do no harm.
func TestForeignReplies(t *testing.T) {
	p, client := startPeer(t)
	go func() {
		r := p.receive()
		for _, id := range []string{`1`, `"1"`, `null`, `{"a": [1]}`, `"00000000-2"`} {
			p.send(`{"return": {"x": 1}, "id": ` + id + "}\r\n")
		}
		p.send(`{"return": {"x": 1}}` + "\n\r\n  \n" + `{"error": {"class": "GenericError", "desc": "late"}, "id": 7}` + "\n")
		p.send(`{"id": 3}` + "\n" + `{"future": true, "id": ` + string(r.ID) + "}\n{}\n")
		p.reply(r, `{"x": 2}`)
		p.reply(r, `{"x": 3}`)
		p.reply(p.receive(), `{"x": 4}`)
	}()
	for _, want := range []int{2, 4} {
		var got struct{ X int }
		if err := client.Execute(testContext(t), "query-x", nil, &got); err != nil || got.X != want {
			t.Errorf("got %d, %v, want %d", got.X, err, want)
		}
	}
}

func TestEndReachesEveryone(t *testing.T) {
	tests := map[string]struct {
		end  func(*qmptest.Server, *qmp.Client)
		want error
	}{
		"server drops":       {func(s *qmptest.Server, _ *qmp.Client) { s.Drop() }, nil},
		"client closes":      {func(_ *qmptest.Server, c *qmp.Client) { c.Close(); c.Close() }, net.ErrClosed},
		"server sends HMP":   {func(s *qmptest.Server, _ *qmp.Client) { s.SendRaw([]byte("(qemu) \n")) }, qmp.ErrProtocol},
		"server sends much":  {func(s *qmptest.Server, _ *qmp.Client) { s.SendRaw([]byte(strings.Repeat(" ", 1010000))) }, qmp.ErrMessageTooLong},
		"in mid-message":     {func(s *qmptest.Server, _ *qmp.Client) { s.SendRaw([]byte(`{"event"`)); s.Drop() }, io.ErrUnexpectedEOF},
		"events of a number": {func(s *qmptest.Server, _ *qmp.Client) { s.SendRaw([]byte(`{"event": 1}` + "\n")) }, qmp.ErrProtocol},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server, client := startServer(t, qmp.WithMaxMessageSize(1000000))
			const waiters = 5
			held := make(chan struct{}, waiters)
			server.Handle("hold", nil, func(*qmptest.Request) { held <- struct{}{} })
			errs := make(chan error, 2*waiters)
			for range waiters {
				sub := client.Subscribe()
				go func() { errs <- client.Execute(testContext(t), "hold", nil, nil) }()
				go func() { _, err := sub.Next(testContext(t)); errs <- err }()
			}
			for range waiters {
				<-held
			}
			test.end(server, client)
			for range 2 * waiters {
				err := <-errs
				if !errors.Is(err, qmp.ErrDisconnected) || test.want != nil && !errors.Is(err, test.want) {
					t.Errorf("a waiter got %v, want %v", err, test.want)
				}
			}
			<-client.Done()
			if err := client.Err(); !errors.Is(err, qmp.ErrDisconnected) {
				t.Errorf("Err: %v", err)
			}
			if err := client.Execute(testContext(t), "hold", nil, nil); !errors.Is(err, qmp.ErrDisconnected) || !errors.Is(err, qmp.ErrNotSent) {
				t.Errorf("a call afterwards: %v", err)
			}
			if _, err := client.Subscribe().Next(testContext(t)); !errors.Is(err, qmp.ErrDisconnected) {
				t.Errorf("a subscription afterwards: %v", err)
			}
		})
	}
}

func TestQuit(t *testing.T) {
	_, client := startServer(t)
	testQuit(t, client)
}

// TestMemoryAtRest: what a large reply took is given back.
func TestMemoryAtRest(t *testing.T) {
	server, client := startServer(t)
	const size = 8 << 20
	server.Handle("much", nil, qmptest.Return(strings.Repeat("x", size)))
	if err := client.Execute(testContext(t), "much", nil, nil); err != nil {
		t.Fatal(err)
	}
	server.Handle("much", nil, qmptest.Return(1))
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	if stats.HeapAlloc >= size {
		t.Errorf("%d bytes on the heap after a reply of %d", stats.HeapAlloc, size)
	}
	runtime.KeepAlive(client)
}
