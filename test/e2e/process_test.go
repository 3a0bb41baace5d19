package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/suites"
)

// process is a handle on a process, by which its end can be waited for.
type process struct {
	t   *testing.T
	pid int64
	fd  int // of pidfd_open(2)
}

func handle(t *testing.T, pid int64) process {
	t.Helper()
	fd, err := unix.PidfdOpen(int(pid), 0)
	if err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return process{t, pid, fd}
}

func (p process) signal(s unix.Signal) {
	p.t.Helper()
	if err := unix.PidfdSendSignal(p.fd, s, nil, 0); err != nil {
		p.t.Fatal(err)
	}
}

// freeze stops each of the process' threads: the signal reaches them one after the other,
// and until then they go on answering.
func (p process) freeze() {
	p.t.Helper()
	p.signal(unix.SIGSTOP)
	ctx, cancel := suites.Wait(context.Background(), p.t, patience)
	defer cancel()
	for ; !p.stopped(); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			p.t.Fatalf("process %d does not stop: %v", p.pid, context.Cause(ctx))
		}
	}
}

func (p process) stopped() bool {
	p.t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.pid))
	if err != nil || len(threads) == 0 {
		p.t.Fatalf("process %d has no threads: %v", p.pid, err)
	}
	for _, stat := range threads {
		b, err := os.ReadFile(stat)
		if err != nil {
			return false // this thread has just ended
		}
		_, state, _ := bytes.Cut(b[bytes.LastIndexByte(b, ')'):], []byte(" "))
		if !bytes.HasPrefix(state, []byte("T")) {
			return false
		}
	}
	return true
}

// gone waits until the process has ended.
func (p process) gone() {
	p.t.Helper()
	ctx, cancel := suites.Wait(context.Background(), p.t, patience)
	defer cancel()
	if err := gone(ctx, p.fd); err != nil {
		p.t.Fatalf("process %d has not ended: %v", p.pid, err)
	}
}

// gone waits until the process of a descriptor of pidfd_open(2) has ended.
func gone(ctx context.Context, fd int) error {
	for ctx.Err() == nil {
		const most = 100 // ms, until it looks whether to go on
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, most)
		if n == 1 || err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return context.Cause(ctx)
}
