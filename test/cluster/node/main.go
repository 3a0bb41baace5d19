// Command node is the first process of a cluster's node: in namespaces of its
// own it mounts what the node is to have, starts what it is told to on its
// standard input, and reaps. It ends with its input, that is with whoever started it,
// however that ended; and as it is the first process of its PID namespace the
// kernel then kills all others, and mounts and interfaces go with them.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/cluster/internal/wire"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "node is for test/cluster, which starts it in namespaces of its own")
		os.Exit(2)
	}
	// A Ctrl-C is for who started it, who wants to tidy up.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	n := &node{replies: json.NewEncoder(os.Stdout), names: make(map[int]string), pids: make(map[string]int)}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	go func() {
		for range ended {
			n.reap()
		}
	}()
	if err := n.serve(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

// node is what is running. Its lock is held from before a process is started
// until it is known, so that none is reaped as a stranger.
type node struct {
	mu      sync.Mutex
	replies *json.Encoder
	names   map[int]string
	pids    map[string]int
}

func (n *node) serve(in io.Reader) error {
	requests := json.NewDecoder(in)
	for {
		var r wire.Request
		if err := requests.Decode(&r); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var reply wire.Reply
		n.mu.Lock()
		if err := n.do(r); err != nil {
			reply.Error = err.Error()
		}
		err := n.replies.Encode(reply)
		n.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

func (n *node) do(r wire.Request) error {
	switch {
	case r.Setup != nil:
		return setUp(r.Setup)
	case r.Start != nil:
		return n.start(r.Start)
	case r.Signal != nil:
		pid, running := n.pids[r.Signal.Name]
		if !running {
			return nil
		}
		return unix.Kill(pid, unix.Signal(r.Signal.Signal))
	}
	return errors.New("a request for nothing")
}

func (n *node) start(p *wire.Process) error {
	if pid, running := n.pids[p.Name]; running {
		return fmt.Errorf("%s is running already, as process %d", p.Name, pid)
	}
	log, err := os.OpenFile(p.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	started, err := os.StartProcess(p.Args[0], p.Args, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{null, log, log},
		// A terminal's Ctrl-C goes to a whole group.
		Sys: &unix.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return err
	}
	n.names[started.Pid], n.pids[p.Name] = p.Name, started.Pid
	return started.Release()
}

// reap takes the status of all that have ended: its own, which it tells of, and
// orphans.
func (n *node) reap() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid == 0 {
			return
		}
		name, own := n.names[pid]
		if !own {
			continue
		}
		delete(n.names, pid)
		delete(n.pids, name)
		// If nobody listens any more, serve has ended, too.
		_ = n.replies.Encode(wire.Reply{Ended: name, How: how(status)})
	}
}

func how(status unix.WaitStatus) string {
	if status.Signaled() {
		return "signal " + unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}
