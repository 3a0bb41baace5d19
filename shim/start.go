package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/shim/internal/rundir"
)

// ListenerFile is the number of the descriptor on which a shim finds its
// listening socket.
const ListenerFile = 3

// StopSignal asks a shim that an agent has started to shut its guest down, as SIGTERM
// does. It may be sent to the VMM as well, which SIGTERM would end at once: the default
// action is to ignore it (signal(7)).
const StopSignal = unix.SIGWINCH

// maxShimLog is the size in bytes from which a shim's log makes way for a new
// one when the next shim starts.
const maxShimLog = 1 << 20

// Listen binds the shim's socket in a run folder that no agent has made: in a pod.
func Listen(runDir string) (*net.UnixListener, error) {
	run, err := rundir.Open(runDir)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	return run.ListenHere(SocketName)
}

// StartOptions say how a shim is started.
type StartOptions struct {
	// Binary is the path of vmlet-shim.
	Binary string
	// RunDir and StateDir of the VM; both must exist.
	RunDir   string
	StateDir string
	// RunID is what this run's exit.json has as its RunID.
	RunID string
	// Grace that a guest has to shut down when the shim itself is asked to end
	// by a signal. 0: the shim's default.
	Grace time.Duration
	// Verbose logs at level debug.
	Verbose bool
	// Within, if set, calls start, once, where the process is to begin, with what else
	// that takes. The process is ended if Within fails after it.
	Within func(start func(*syscall.SysProcAttr) (pid int, err error)) error
}

// Start starts a shim, in a session of its own so that it outlives the agent,
// and connects to it. ctx is for the start only. While this process lives it
// reaps the shim. If it fails no shim is left.
func Start(ctx context.Context, o StartOptions) (*Client, int, error) {
	run, err := rundir.Open(o.RunDir)
	if err != nil {
		return nil, 0, err
	}
	defer run.Close()
	log, err := openShimLog(o.StateDir)
	if err != nil {
		return nil, 0, err
	}
	defer log.Close()
	listener, err := run.Listen(SocketName)
	if err != nil {
		return nil, 0, err
	}
	defer listener.Close()
	cmd, err := o.spawn(log, listener)
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("shim %s: %w", o.Binary, err), run.Remove(SocketName))
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	// From here a connection is refused if the shim ends, instead of waiting.
	listener.Close()
	pid := cmd.Process.Pid
	client, err := o.connect(ctx, run, ended)
	if err != nil {
		cmd.Process.Kill()
		return nil, 0, errors.Join(err, run.Remove(SocketName))
	}
	return client, pid, nil
}

// spawn starts the process where it belongs.
func (o StartOptions) spawn(log, listener *os.File) (*exec.Cmd, error) {
	cmd := o.command(log, listener)
	start := func(attr *syscall.SysProcAttr) (int, error) {
		attr.Setsid = true
		cmd.SysProcAttr = attr
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	}
	if o.Within == nil {
		_, err := start(new(syscall.SysProcAttr))
		return cmd, err
	}
	err := o.Within(start)
	if err != nil && cmd.Process != nil {
		cmd.Process.Kill()
		err = errors.Join(err, cmd.Wait())
	}
	return cmd, err
}

// reapTime is how long the end of a process is waited for whose connection has ended.
const reapTime = time.Second

func (o StartOptions) command(log, listener *os.File) *exec.Cmd {
	args := []string{"--run-dir", o.RunDir, "--state-dir", o.StateDir, "--run-id", o.RunID}
	if o.Grace > 0 {
		args = append(args, "--grace", o.Grace.String())
	}
	if o.Verbose {
		args = append(args, "--verbose")
	}
	cmd := exec.Command(o.Binary, args...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{listener} // becomes ListenerFile
	return cmd
}

// connect says hello, unless the shim ends before it answers.
func (o StartOptions) connect(ctx context.Context, run *rundir.Dir, ended <-chan error) (*Client, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	settled := make(chan struct{})
	defer close(settled)
	go func() {
		select {
		case err := <-ended:
			cancel(fmt.Errorf("shim %s ended at its start (%v): see %s in %s", o.Binary, err, ShimLogName, o.StateDir))
		case <-settled:
		}
	}()
	conn, err := run.Dial(ctx, SocketName)
	if err == nil {
		var client *Client
		if client, err = NewClient(ctx, conn); err == nil {
			return client, nil
		}
	}
	// The connection ends a moment before the process is reaped.
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(reapTime):
	}
	return nil, fmt.Errorf("shim %s: %w (see %s in %s)", o.Binary, err, ShimLogName, o.StateDir)
}

// openShimLog opens the log to append to it; one that has grown large is kept
// as ".1" until the next.
func openShimLog(stateDir string) (*os.File, error) {
	dir, err := rundir.Open(stateDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	open := func() (*os.File, error) {
		return dir.OpenFile(ShimLogName, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND, 0o600)
	}
	log, err := open()
	if err != nil {
		return nil, err
	}
	st, err := log.Stat()
	if err != nil || st.Size() < maxShimLog {
		return log, err
	}
	log.Close()
	if err := dir.Rename(ShimLogName, ShimLogName+".1"); err != nil {
		return nil, err
	}
	return open()
}
