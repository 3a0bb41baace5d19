package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/test/suites"
)

// faults is the other end of package faultpoint: it hears of each step that a node's
// programs come to, and has them wait there.
type faults struct {
	path string

	mu      sync.Mutex
	reached map[string]int
	order   []string // each step once, as they were come to first
	hooks   map[string][]func(pid int)
}

func newFaults(t *testing.T) *faults {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e-faults-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	f := &faults{path: filepath.Join(dir, "socket")}
	f.forget()
	listener, err := net.Listen("unix", f.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go f.serve(conn)
		}
	}()
	return f
}

func (f *faults) env() []string { return []string{faultpoint.Variable + "=" + f.path} }

// serve lets a program go on when what is to happen there has happened.
func (f *faults) serve(conn net.Conn) {
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return // killed meanwhile
	}
	var step string
	var pid int
	if _, err := fmt.Sscanf(line, "%s %d\n", &step, &pid); err != nil {
		return
	}
	f.mu.Lock()
	if f.reached[step]++; f.reached[step] == 1 {
		f.order = append(f.order, step)
	}
	hooks := f.hooks[step]
	delete(f.hooks, step)
	f.mu.Unlock()
	for _, hook := range hooks {
		hook(pid)
	}
}

// at has something done when a step is come to, once; what was said before is done, too.
func (f *faults) at(step string, do func(pid int)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hooks[step] = append(f.hooks[step], do)
}

// forget begins anew.
func (f *faults) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reached, f.order, f.hooks = make(map[string]int), nil, make(map[string][]func(int))
}

// steps are those that were come to since.
func (f *faults) steps() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.order...)
}

// buildFaulty makes programs that wait at their steps. Not with the race detector,
// which would take most of the time of agents that are started over and over.
func buildFaulty(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(bin, "faulty")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace,faultpoints", "-o", dir+"/",
		"github.com/vmlet/vmlet/cmd/vmlet", "github.com/vmlet/vmlet/cmd/vmlet-agent", "github.com/vmlet/vmlet/cmd/vmlet-shim")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building programs with fault points: %v\n%s", err, out)
	}
	return dir
}

// Who is killed.
const (
	theAgent = "agent"
	theShim  = "shim"
	theVMM   = "VMM"
)

// victims are the processes of a node with one VM that are the one or the other.
func (n *node) victims(who string) (pids []int) {
	for pid, what := range n.processes() {
		is := theVMM
		switch {
		case strings.Contains(what, "vmlet-shim"):
			is = theShim
		case strings.Contains(what, "vmlet-agent "):
			is = theAgent
		}
		// One that an agent is about to start a shim in has the agent's name.
		if is == who && (who != theAgent || pid == n.cmd.Process.Pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// slay kills a process and returns when it has ended; one that is not there any more
// is as good.
func slay(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	ctx, cancel := suites.Patience(context.Background(), patience)
	defer cancel()
	if err := gone(ctx, fd); err != nil {
		return fmt.Errorf("process %d has not ended after SIGKILL: %w", pid, err)
	}
	return nil
}
