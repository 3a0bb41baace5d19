package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/cluster/internal/wire"
	"github.com/vmlet/vmlet/test/suites"
)

// nodeProcess is a node's first process, below which components run: one of this program's, or another's.
type nodeProcess interface {
	pid() int
	// start starts a component whose output goes to a log.
	start(name, log string, args ...string) error
	// stop ends a component, which may take some time, and returns when it has ended. Without any it is killed.
	stop(name string, grace time.Duration) error
}

// initProcess is the client of a node's first process that this program has started.
type initProcess struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	requests *json.Encoder
	replies  chan wire.Reply // closed when the process has ended
	onEnd    func(name, how string)

	one sync.Mutex // one request at a time

	mu      sync.Mutex
	running map[string]*process
	killed  bool // nobody is told of processes that end
}

// process is one that runs.
type process struct {
	gone     chan struct{} // closed at its end
	stopping bool          // it is to end
}

// namespaces that a node has of its own.
const namespaces = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS

// startInit starts the program in namespaces of its own. Its log is opened for
// it. onEnd is called for each process that ends without having been stopped.
func startInit(program, log string, onEnd func(name, how string)) (*initProcess, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	n := &initProcess{
		cmd: exec.Command(program), onEnd: onEnd,
		replies: make(chan wire.Reply), running: make(map[string]*process),
	}
	// In a group of its own: a terminal's Ctrl-C is not for what is in there.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: namespaces, Setpgid: true,
	}
	n.cmd.Env, n.cmd.Dir, n.cmd.Stderr = environment(), "/", file
	if n.in, err = n.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a process in namespaces of its own: %w", err)
	}
	n.requests = json.NewEncoder(n.in)
	go n.listen(json.NewDecoder(out))
	return n, nil
}

func (n *initProcess) listen(replies *json.Decoder) {
	defer close(n.replies)
	for {
		var r wire.Reply
		if replies.Decode(&r) != nil {
			return
		}
		if r.Ended == "" {
			n.replies <- r
			continue
		}
		n.mu.Lock()
		p := n.running[r.Ended]
		delete(n.running, r.Ended)
		told := !p.stopping && !n.killed
		n.mu.Unlock()
		if told {
			n.onEnd(r.Ended, r.How)
		}
		close(p.gone)
	}
}

func (n *initProcess) ask(r wire.Request) error {
	n.one.Lock()
	defer n.one.Unlock()
	sent := n.requests.Encode(r)
	reply, ok := <-n.replies
	switch {
	case !ok:
		return errors.Join(errors.New("the node's first process has ended"), sent)
	case reply.Error != "":
		return errors.New(reply.Error)
	}
	return nil
}

func (n *initProcess) start(name, log string, args ...string) error {
	n.mu.Lock()
	n.running[name] = &process{gone: make(chan struct{})}
	n.mu.Unlock()
	err := n.ask(wire.Request{Start: &wire.Process{Name: name, Log: log, Args: args}})
	if err != nil {
		n.mu.Lock()
		delete(n.running, name)
		n.mu.Unlock()
		return fmt.Errorf("starting %s: %w", name, err)
	}
	return nil
}

// grace is how long a process may take to end when it is told to.
const grace = 10 * time.Second

func (n *initProcess) stop(name string, grace time.Duration) error {
	n.mu.Lock()
	p := n.running[name]
	if p != nil {
		p.stopping = true
	}
	n.mu.Unlock()
	if p == nil {
		return nil
	}
	for _, try := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, grace}, {syscall.SIGKILL, patience}} {
		if try.wait == 0 {
			continue
		}
		if err := n.ask(wire.Request{Signal: &wire.Signal{Name: name, Signal: int(try.signal)}}); err != nil {
			return fmt.Errorf("stopping %s: %w", name, err)
		}
		select {
		case <-p.gone:
			return nil
		case <-time.After(try.wait):
		}
	}
	return fmt.Errorf("%s does not end", name)
}

func (n *initProcess) pid() int { return n.cmd.Process.Pid }

// end ends all processes of the node, and returns when there are none.
func (n *initProcess) end() error {
	_ = n.in.Close()
	ctx, cancel := suites.Patience(context.Background(), patience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = n.cmd.Process.Kill() })()
	for range n.replies { // an answer that nobody waits for must not hold it up
	}
	if err := n.cmd.Wait(); err != nil {
		return fmt.Errorf("the node's first process: %w", err)
	}
	return nil
}

// kill ends all processes of the node without warning, and returns when there are none.
func (n *initProcess) kill() error {
	n.mu.Lock()
	n.killed = true
	n.mu.Unlock()
	if err := n.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("killing the node's first process: %w", err)
	}
	for range n.replies {
	}
	_ = n.cmd.Wait() // it was killed
	return nil
}
