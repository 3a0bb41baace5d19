package server

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim/internal/logfile"
	"github.com/vmlet/vmlet/shim/internal/rundir"
)

// TestSettleWaitsForAbort has the VMM end at the very moment at which the save
// that waits for its commit is being undone: nothing of it is left.
func TestSettleWaitsForAbort(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "image")
	image, err := memory.Create(dir, memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := image.StateFile(); err != nil {
		t.Fatal(err)
	}
	run, err := rundir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	s := &session{
		run: run,
		o:   Options{ClearWithin: patience},
		log: slog.New(slog.NewTextHandler(io.Discard, nil)), conns: make(map[*conn]struct{}),
		ended: make(chan struct{}), released: make(chan struct{}),
	}
	undo := &rollback{session: s}
	ender := &ender{session: s, rollback: undo}
	done := make(chan struct{})
	close(done)
	v := withEngine(&vm{}, &process{done: done, state: &os.ProcessState{}, words: logfile.NewTail(1)}, &fakeMachine{})
	s.vm = v
	p := &prepared{image: image, expire: time.NewTimer(time.Hour)}
	s.prepared = p
	first, err := s.begin("pause", nil)
	if err != nil {
		t.Fatal(err)
	}
	settled := make(chan struct{})
	go func() {
		ender.settle(v)
		close(settled)
	}()
	<-first.ctx.Done() // settle waits for the first
	s.mu.Lock()
	s.op = nil
	abort := s.takePrepared()
	close(first.done)
	s.mu.Unlock()
	<-abort.ctx.Done() // and now for the abort
	select {
	case <-settled:
		t.Fatal("it did not wait")
	default:
	}
	undo.discard(abort, v, p)
	<-settled
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("left: %v", err)
	}
}
