// Package process starts a driver's program: without rights, bounded in what it says, and
// gone when its parent is. It knows nothing of the protocol but how a program is
// started for it (package wire). Start with Start.
package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vmlet/vmlet/internal/unixsocket"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/vmm/remote/wire"

	"golang.org/x/sys/unix"
)

const (
	// maxLines bounds how much of what a driver prints goes to the log.
	maxLines = 1000
	maxLine  = 4 << 10
	// nobody is the user of a driver that root starts for no VM.
	nobody = 65534
)

// Options say what is started.
type Options struct {
	// Program is its absolute path, Args do not repeat it.
	Program string
	Args    []string
	// User that it runs as; nil: this process's own, or nobody if that is root.
	User *plan.User
	// Listener is a listening socket on which it serves agents; nil: none. It stays the
	// caller's.
	Listener *os.File
	// End is its end of a connection that somebody else has the other end of; nil: there is a new one, see
	// Process.Conn. It stays the caller's.
	End *os.File
	Log *slog.Logger
}

// Process is a driver's program that runs.
type Process struct {
	// Conn is the connection to it; nil with Options.End. It is the caller's.
	Conn *net.UnixConn
	proc *os.Process
	done chan struct{}
	said atomic.Pointer[string] // the last line of what it printed
	why  error
}

// Start starts the program. It dies with this process.
func Start(o Options) (*Process, error) {
	p := &Process{done: make(chan struct{})}
	if o.End == nil {
		conn, other, err := unixsocket.Pair("driver")
		if err != nil {
			return nil, err
		}
		defer other.Close()
		p.Conn, o.End = conn.(*net.UnixConn), other
	}
	output, input, err := os.Pipe()
	if err != nil {
		p.hangUp()
		return nil, err
	}
	defer input.Close()
	started := make(chan error)
	go p.run(command(o, o.End, input), output, o.Log, started)
	if err := <-started; err != nil {
		p.hangUp()
		output.Close()
		return nil, fmt.Errorf("start driver %s: %w", o.Program, err)
	}
	return p, nil
}

func (p *Process) hangUp() {
	if p.Conn != nil {
		p.Conn.Close()
	}
}

func command(o Options, conn, output *os.File) *exec.Cmd {
	cmd := exec.Command(o.Program, o.Args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", wire.CookieVariable + "=" + wire.CookieValue}
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = []*os.File{conn}
	if o.Listener != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, o.Listener)
		cmd.Env = append(cmd.Env, wire.ListenVariable+"=1")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	switch u := o.User; {
	case u != nil:
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	case os.Geteuid() == 0:
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody, Groups: deviceGroups()}
	}
	return cmd
}

// deviceGroups are those whose members may open the hypervisors' devices: a VMM that is asked
// without them would say that it can't run guests.
func deviceGroups() (groups []uint32) {
	for _, device := range []string{"/dev/kvm", "/dev/mshv"} {
		var st unix.Stat_t
		if unix.Stat(device, &st) == nil && st.Gid != 0 && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Mode&0o060 == 0o060 {
			groups = append(groups, st.Gid)
		}
	}
	return groups
}

// run starts the program and waits for its end on one thread, as the kernel sends the
// parent-death signal when that thread ends. no_new_privs is the thread's, and inherited; the
// capabilities go with the change of user.
func (p *Process) run(cmd *exec.Cmd, output *os.File, log *slog.Logger, started chan<- error) {
	runtime.LockOSThread()
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		started <- err
		return
	}
	p.proc = cmd.Process
	started <- nil
	read := make(chan struct{})
	go func() { defer close(read); p.relay(output, log) }()
	err = cmd.Wait()
	// What it left in its group goes, too; a child that left the group may hold the pipe.
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	_ = output.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	<-read
	output.Close()
	p.why = p.ending(err)
	close(p.done)
}

func (p *Process) ending(err error) error {
	how := "ended with exit status 0"
	if err != nil {
		how = "ended: " + err.Error()
	}
	if last := p.said.Load(); last != nil {
		how += ": " + *last
	}
	return errors.New("the driver's program " + how)
}

// relay logs what the program prints, up to a bound, and reads the rest.
func (p *Process) relay(output io.Reader, log *slog.Logger) {
	r := bufio.NewReaderSize(output, maxLine)
	for n := 0; ; n++ {
		line, long, err := r.ReadLine()
		if text := strings.ToValidUTF8(string(line), "?"); text != "" {
			p.said.Store(&text)
			if log != nil && n < maxLines {
				log.Info("driver", "said", text)
			}
		}
		for long && err == nil {
			_, long, err = r.ReadLine()
		}
		if err != nil {
			return
		}
	}
}

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Why says how it ended. Only after Done.
func (p *Process) Why() error { return p.why }

// Explain adds to an error how the program ended, if it has, or does within a moment.
func (p *Process) Explain(err error) error {
	if !errors.Is(err, wire.ErrLost) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	select {
	case <-p.done:
		return fmt.Errorf("%w: %w", err, p.why)
	case <-ctx.Done():
		return err
	}
}

// Close kills the program and waits for its end.
func (p *Process) Close() error {
	p.hangUp()
	err := p.proc.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-p.done
	return err
}
