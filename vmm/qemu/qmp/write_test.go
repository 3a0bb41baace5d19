package qmp_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/qmp/qmptest"
)

// TestInterruptedWrite: a call that ends in the middle of its message costs
// neither the connection nor the next call.
func TestInterruptedWrite(t *testing.T) {
	p, client := startPeer(t)
	args := map[string]string{"text": strings.Repeat("x", 100000)}

	ctx, cancel := context.WithCancel(testContext(t))
	first := make(chan error)
	go func() { first <- client.Execute(ctx, "first", args, nil) }()
	if _, err := p.r.Peek(1); err != nil { // the pipe has no buffer: the write is under way
		t.Fatal(err)
	}
	waiting, stopWaiting := context.WithCancel(testContext(t))
	second := make(chan error)
	go func() { second <- client.Execute(waiting, "second", nil, nil) }()
	stopWaiting()
	if err := <-second; !errors.Is(err, qmp.ErrNotSent) || !errors.Is(err, context.Canceled) {
		t.Errorf("the call that waited for its turn: %v", err)
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) || errors.Is(err, qmp.ErrNotSent) {
		t.Errorf("the call that was half sent: %v", err)
	}

	third := make(chan error)
	go func() { third <- client.Execute(testContext(t), "third", nil, nil) }()
	r := p.receive()
	if r.Execute != "first" || len(r.Arguments) < 100000 {
		t.Errorf("received %s with %d bytes of arguments, want all of first", r.Execute, len(r.Arguments))
	}
	p.reply(r, `{}`)
	r = p.receive()
	if r.Execute != "third" {
		t.Errorf("received %s, want third", r.Execute)
	}
	p.reply(r, `{}`)
	if err := <-third; err != nil {
		t.Error(err)
	}
}

// TestInterruptedRest: the rest of an earlier message is itself given up and taken
// up again, and a call that didn't get to its own message was not sent.
func TestInterruptedRest(t *testing.T) {
	p, client := startPeer(t)
	args := map[string]string{"text": strings.Repeat("x", 100000)}
	for i := range 3 {
		ctx, cancel := context.WithCancel(testContext(t))
		result := make(chan error)
		go func() { result <- client.Execute(ctx, "call", args, nil) }()
		p.receiveSome()
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) || errors.Is(err, qmp.ErrNotSent) != (i > 0) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// receiveSome reads the next bytes that are written, and drops them.
func (p *peer) receiveSome() {
	if _, err := p.conn.Read(make([]byte, 10)); err != nil {
		p.t.Errorf("peer: %v", err)
	}
}

func TestCancelledBeforeSending(t *testing.T) {
	server, client := startServer(t)
	server.Handle("never", nil, func(*qmptest.Request) { t.Error("the command was sent") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client.Execute(ctx, "never", nil, nil); !errors.Is(err, qmp.ErrNotSent) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := client.Execute(testContext(t), "query-commands", nil, nil); err != nil {
		t.Error(err)
	}
}

// TestFiles: many callers send files and commands without, and each command gets
// its own.
func TestFiles(t *testing.T) {
	server, client := startServer(t)
	server.Handle("query-status", qmptest.Args{}, func(r *qmptest.Request) { r.Return(nil) })
	server.Handle("getfd", qmptest.Args{"fdname": qmptest.Str}, func(r *qmptest.Request) {
		file, err := r.File()
		if err != nil {
			r.Fail(err)
			return
		}
		defer file.Close()
		content := make([]byte, 100)
		n, err := file.ReadAt(content, 0)
		var args struct{ FDName string }
		if bindErr := r.Bind(&args); bindErr != nil || string(content[:n]) != args.FDName {
			r.Fail(fmt.Errorf("file holds %q, %v, want %q", content[:n], err, args.FDName))
			return
		}
		r.Return(nil)
	})
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 40 {
		name := fmt.Sprintf("file%d%s", i, strings.Repeat("x", i))
		wg.Go(func() {
			file := writeFile(t, filepath.Join(dir, name), name)
			defer file.Close()
			if err := client.ExecuteWithFiles(testContext(t), "getfd", map[string]string{"fdname": name}, nil, file); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if err := client.Execute(testContext(t), "query-status", nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	first, other := writeFile(t, filepath.Join(dir, "first"), "first"), writeFile(t, filepath.Join(dir, "other"), "other")
	defer first.Close()
	defer other.Close()
	if err := client.ExecuteWithFiles(testContext(t), "getfd", map[string]string{"fdname": "first"}, nil, first, other, other); err != nil {
		t.Errorf("three files, of which QEMU takes the first: %v", err)
	}
	if err := client.Execute(testContext(t), "getfd", map[string]string{"fdname": "x"}, nil); !errors.Is(err, qmp.GenericError) {
		t.Errorf("getfd without a file: %v", err)
	}
}

func writeFile(t *testing.T, path, content string) *os.File {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Error(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Error(err)
	}
	return file
}

func TestFilesThatCannotBeSent(t *testing.T) {
	_, client := startServer(t)
	_, pipeClient := startPeer(t)
	open := writeFile(t, filepath.Join(t.TempDir(), "f"), "x")
	defer open.Close()
	closed := writeFile(t, filepath.Join(t.TempDir(), "f"), "x")
	closed.Close()
	tests := map[string]struct {
		client *qmp.Client
		files  []*os.File
	}{
		"closed":            {client, []*os.File{open, closed}},
		"nil":               {client, []*os.File{nil}},
		"too many":          {client, make([]*os.File, qmp.MaxFiles+1)},
		"not a unix socket": {pipeClient, []*os.File{open}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.client.ExecuteWithFiles(testContext(t), "add-fd", nil, nil, test.files...)
			if !errors.Is(err, qmp.ErrNotSent) || errors.Is(err, qmp.ErrDisconnected) {
				t.Errorf("got %v", err)
			}
		})
	}
	if err := client.Execute(testContext(t), "query-commands", nil, nil); err != nil {
		t.Errorf("the connection has suffered: %v", err)
	}
}

// TestBrokenWrite: a peer that no longer reads is told by the call, while what it
// sent before is still read.
func TestBrokenWrite(t *testing.T) {
	server, client := startServer(t)
	sub := client.Subscribe()
	server.Emit("SHUTDOWN", nil)
	server.Drop()
	if err := client.Execute(testContext(t), "query-status", nil, nil); !errors.Is(err, qmp.ErrDisconnected) {
		t.Errorf("Execute: %v", err)
	}
	if event := next(t, sub); event.Name != "SHUTDOWN" {
		t.Errorf("got %s", event.Name)
	}
	if _, err := sub.Next(testContext(t)); !errors.Is(err, qmp.ErrDisconnected) {
		t.Errorf("Next: %v", err)
	}
}
