package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/internal/limits"
	"github.com/vmlet/vmlet/shim/internal/logfile"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/shim/server/fault"
)

const (
	lastWords     = 20      // lines
	lastWordBytes = 4 << 10 // at most
	// afterwards bounds what is read of a VMM's output after its end.
	afterwards = 1 << 20
)

// process is a running VMM.
type process struct {
	name  string
	pid   int
	words *logfile.Tail
	done  chan struct{} // closed when it was reaped and its output is read
	state *os.ProcessState
	pidfd *os.Process
}

// startProcess starts the VMM with its descriptors, which stay the caller's.
// Its output goes to log, but for what it has another standard output for.
func startProcess(p *plan.Plan, files []*os.File, stdin, stdout *os.File, log io.Writer) (*process, error) {
	return startPrepared(p, files, stdin, stdout, log, nil)
}

// startPrepared is startProcess after something that is done to the thread that starts the VMM; nil: nothing.
func startPrepared(p *plan.Plan, files []*os.File, stdin, stdout *os.File, log io.Writer, prepare func() error) (*process, error) {
	output, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := command(p, files, input)
	if stdin != nil {
		cmd.Stdin, cmd.Stdout = stdin, stdout
	}
	proc := &process{
		name:  filepath.Base(p.Program),
		words: logfile.NewTail(lastWordBytes),
		done:  make(chan struct{}),
	}
	started := make(chan error)
	go proc.run(cmd, prepare, started, output, io.MultiWriter(log, proc.words))
	err = <-started
	input.Close()
	if err != nil {
		output.Close()
		return nil, fmt.Errorf("start %s: %w", p.Program, err)
	}
	return proc, nil
}

func command(p *plan.Plan, files []*os.File, output *os.File) *exec.Cmd {
	cmd := exec.Command(p.Program, p.Args...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}, p.Env...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = files // from plan.FirstFile on
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if u := p.User; u != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	}
	return cmd
}

// run starts the VMM and waits for its end on one thread: the kernel sends the
// parent-death signal when the thread that forked ends, not the process
// (prctl(2), PR_SET_PDEATHSIG). The thread ends with this goroutine, since it
// stays locked, and so do its no_new_privs and its sets of capabilities, which the VMM inherits.
func (p *process) run(cmd *exec.Cmd, prepare func() error, started chan<- error, output *os.File, sink io.Writer) {
	runtime.LockOSThread()
	// A session keyring is inherited, and who has it may use its keys, anyone's they
	// are (keyrings(7)): the VMM gets an empty one. It is a thread's, too. Runtimes of
	// containers forbid the call, and have seen to it themselves.
	_, _ = unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0) // one without a name
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil && cmd.SysProcAttr.Credential != nil { // in a pod they are the container's
		err = limits.GiveUpCapabilities()
	}
	if err == nil && prepare != nil {
		err = prepare()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		started <- err
		return
	}
	p.pid, p.pidfd = cmd.Process.Pid, cmd.Process
	if cmd.SysProcAttr.Credential != nil { // else a pod's, which has the score of its pod
		// The agent and its shims may have had theirs lowered, so that the kernel kills
		// them last; a VMM has what a process has. That it can't be set changes nothing else.
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.pid), []byte("0"), 0)
	}
	started <- nil
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.CopyBuffer(onlyWriter{sink}, onlyReader{output}, make([]byte, 4<<10))
	}()
	_ = cmd.Wait() // its state tells the same
	p.state = cmd.ProcessState
	// Something that the VMM started may hold the pipe: don't wait for its end.
	_ = output.SetReadDeadline(time.Unix(1, 0))
	<-copied
	drain(output, sink)
	output.Close()
	close(p.done)
}

// onlyReader and onlyWriter hide methods by which io.Copy would make a buffer
// of its own.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)

// drain reads what is in the pipe, without waiting.
func drain(pipe *os.File, sink io.Writer) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		buf := make([]byte, 4<<10)
		for total := 0; total < afterwards; {
			n, err := unix.Read(int(fd), buf)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n <= 0 || err != nil {
				return
			}
			_, _ = sink.Write(buf[:n])
			total += n
		}
	})
}

// kill sends SIGKILL; that it has ended already is no error.
func (p *process) kill() error {
	if err := p.pidfd.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s, process %d: %w", p.name, p.pid, err)
	}
	return nil
}

// ended reports whether done is closed.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// status returns the exit code, -1 with the signal's name if one ended it. Only
// after done.
func (p *process) status() (code int, signal string) {
	ws, ok := p.state.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return -1, unix.SignalName(ws.Signal())
	}
	return p.state.ExitCode(), ""
}

// failure says how it ended, with its last words. Only after done.
func (p *process) failure() error {
	code, signal := p.status()
	how := fmt.Sprintf("ended with exit status %d", code)
	if signal != "" {
		how = "was ended by " + signal
	}
	return &endedError{how: p.name + " " + how, words: p.words.Lines(lastWords)}
}

// endedError says how a VMM has ended, with its last words, and what they name.
type endedError struct{ how, words, object string }

func (e *endedError) Error() string { return e.how + saying(e.words) }

// Faults are the error in parts (contract.FaultsOf).
func (e *endedError) Faults() []contract.Fault {
	return []contract.Fault{{Object: e.object, Text: e.Error()}}
}

// objectIn is the file of a plan that a VMM's words name, the one with the longest path; empty: none.
func objectIn(p *plan.Plan, words string) (path string) {
	for _, f := range p.Files {
		if len(f.Path) > len(path) && strings.Contains(words, f.Path) {
			path = f.Path
		}
	}
	return path
}

// explained has the driver say what the last words of a VMM are about that has ended
// instead of coming up.
func explained(d control.Driver, p *plan.Plan, err error) error {
	explainer, can := d.(control.Explainer)
	var ended *endedError
	if !can || !errors.As(err, &ended) {
		return err
	}
	words, about := explainer.Explain(p, ended.words)
	ended = &endedError{how: ended.how, words: words[:min(len(words), 2*lastWordBytes)], object: objectIn(p, words)}
	if about == nil {
		return ended
	}
	return fault.Saying(about, ended)
}

// dying is how long a VMM that has closed its monitor may take to end by itself.
const dying = time.Second

// endsSoon waits for the end of a VMM that has closed its monitor; false: it lives on.
func (p *process) endsSoon() bool {
	timer := time.NewTimer(dying)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}

// explain prefers the VMM's own words about its end, unless it was killed as somebody
// had asked, and then the cause of the context's, to an error that is only a
// consequence of it.
func (p *process) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, control.ErrMonitorClosed) || errors.Is(err, unix.ECONNREFUSED) { // nobody has its socket any more
		p.endsSoon()
	}
	cause := context.Cause(ctx)
	if p.ended() && !errors.Is(cause, fault.ErrKilled) {
		return p.failure()
	}
	if cause != nil {
		return fmt.Errorf("%w (%v)", cause, err)
	}
	return err
}

// said returns the last words as the end of a message.
func (p *process) said() string { return saying(p.words.Lines(lastWords)) }

func saying(words string) string {
	switch {
	case words == "":
		return ", without a word"
	case strings.Contains(words, "\n"):
		return ", saying:\n" + words
	}
	return ", saying: " + words
}
