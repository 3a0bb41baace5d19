package helper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/unixsocket"
	"github.com/vmlet/vmlet/podnet"
)

// Variable of the environment that hands the helper's socket and process on to the program
// that execve(2) makes of this one.
const Variable = "VMLET_NETWORK_HELPER"

// Start starts a helper of this program's executable and notes it in the environment. The
// descriptor stays open across execve(2).
func Start() error {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("the network helper's socket: %w", err)
	}
	theirs := os.NewFile(uintptr(ends[1]), "network helper")
	defer theirs.Close()
	cmd := exec.Command("/proc/self/exe", Name)
	cmd.Args[0] = os.Args[0]
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{theirs} // becomes controlFile
	if err := cmd.Start(); err != nil {
		unix.Close(ends[0])
		return fmt.Errorf("starting the network helper: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(ends[0]), unix.F_SETFD, 0); err != nil {
		unix.Close(ends[0])
		return errors.Join(err, cmd.Process.Kill())
	}
	return os.Setenv(Variable, fmt.Sprintf("%d:%d", ends[0], cmd.Process.Pid))
}

// Client asks a helper. Its methods may be called concurrently.
type Client struct {
	control *net.UnixConn
	sending sync.Mutex

	ready chan struct{} // closed when refused is known
	ended chan struct{}
	// refused is why the helper can do nothing; nil: it can.
	refused error
}

// Inherited takes the helper over that Start has noted; nil: none was. Programs that are
// started later inherit nothing of it.
func Inherited() (*Client, error) {
	noted := os.Getenv(Variable)
	if noted == "" {
		return nil, nil
	}
	if err := os.Unsetenv(Variable); err != nil {
		return nil, err
	}
	fd, pid, _ := strings.Cut(noted, ":")
	number, errFD := strconv.Atoi(fd)
	child, errPID := strconv.Atoi(pid)
	if err := errors.Join(errFD, errPID); err != nil {
		return nil, fmt.Errorf("%s: %w", Variable, err)
	}
	unix.CloseOnExec(number)
	control, err := connOf(os.NewFile(uintptr(number), "network helper"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Variable, err)
	}
	process, err := os.FindProcess(child)
	if err != nil {
		return nil, errors.Join(err, control.Close())
	}
	go func() { _, _ = process.Wait() }() // nothing but a zombie is to be avoided
	return newClient(control), nil
}

// connOf is the connection that a file is; the file is closed.
func connOf(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	unixConn, is := conn.(*net.UnixConn)
	if !is {
		return nil, errors.Join(errors.New("it is no unix socket"), conn.Close())
	}
	return unixConn, nil
}

func newClient(control *net.UnixConn) *Client {
	c := &Client{control: control, ready: make(chan struct{}), ended: make(chan struct{})}
	go c.follow()
	return c
}

// follow takes the helper's first word, and waits for its end.
func (c *Client) follow() {
	defer close(c.ended)
	var first answer
	_, err := receive(c.control, &first, 0)
	switch {
	case err != nil:
		c.refused = fmt.Errorf("%w before it said anything: %w", ErrEnded, err)
	case first.Error != "":
		c.refused = fmt.Errorf("%w: %w", ErrRefused, first.err())
	}
	close(c.ready)
	if c.refused != nil {
		return
	}
	var nothing [1]byte
	_, _ = c.control.Read(nothing[:]) // it says no more
}

// Ended is closed when the helper has ended, which it does not by itself but where Refused
// says why.
func (c *Client) Ended() <-chan struct{} { return c.ended }

// endPatience is how long Close waits: less than a DaemonSet's pod is given to end.
const endPatience = 5 * time.Second

// Close has the helper end, and waits for it to carry out what it has begun: with the agent's
// container, whatever is left in it is killed.
func (c *Client) Close() error {
	if c.control.CloseWrite() == nil {
		select {
		case <-c.ended:
		case <-time.After(endPatience):
		}
	}
	return c.control.Close()
}

// Refused waits for the helper's first word, and says why it can't make networks on this
// node; nil: it can.
func (c *Client) Refused(ctx context.Context) error {
	select {
	case <-c.ready:
		return c.refused
	case <-ctx.Done():
		return podnet.PassingError{Err: fmt.Errorf("the network helper has not said whether it can work: %w", context.Cause(ctx))}
	}
}

// Make has a plan made in a network namespace. The files are the caller's: for each network
// its taps, then its sockets. A call whose ctx ends may still be carried out. Errors are
// podnet.PassingErrors but for what the helper itself says will not pass.
func (c *Client) Make(ctx context.Context, namespace *os.File, p podnet.Plan) (podnet.Made, []*os.File, error) {
	if err := c.Refused(ctx); err != nil {
		return podnet.Made{}, nil, err
	}
	body, err := json.Marshal(p)
	if err != nil {
		return podnet.Made{}, nil, err
	}
	return c.call(ctx, namespace, body)
}

func (c *Client) call(ctx context.Context, namespace *os.File, body []byte) (podnet.Made, []*os.File, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return podnet.Made{}, nil, err
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "answer"), os.NewFile(uintptr(ends[1]), "answer")
	conn, err := connOf(ours)
	if err == nil {
		defer conn.Close()
		err = c.send(body, namespace, theirs)
	}
	theirs.Close()
	if err != nil {
		return podnet.Made{}, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) }) // one that was closed needs none
	defer stop()
	var a answer
	files, err := receive(conn, &a, podnet.MaxFiles)
	if err == nil {
		// Until the helper has closed its own descriptors: sockets can't be made again before.
		var nothing [1]byte
		_, _ = conn.Read(nothing[:])
	}
	switch {
	case ctx.Err() != nil:
		err = podnet.PassingError{Err: fmt.Errorf("waiting for the network helper: %w", context.Cause(ctx))}
	case errors.Is(err, io.EOF):
		err = podnet.PassingError{Err: ErrEnded}
	case err == nil && a.Error != "" && a.Passing:
		err = podnet.PassingError{Err: a.err()}
	case err == nil && a.Error != "":
		err = a.err()
	}
	if err != nil {
		closeAll(files)
		return podnet.Made{}, nil, err
	}
	return a.Made, files, nil
}

func (c *Client) send(body []byte, files ...*os.File) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	if err := send(c.control, body, files); err != nil {
		return podnet.PassingError{Err: fmt.Errorf("asking the network helper: %w", err)} // it has ended
	}
	return nil
}

// send sends one message, with files that stay the caller's.
func send(conn *net.UnixConn, body []byte, files []*os.File) error {
	var inner error
	err := unixsocket.WithDescriptors(files, func(fds []int) {
		var rights []byte
		if len(fds) > 0 {
			rights = unix.UnixRights(fds...)
		}
		_, _, inner = conn.WriteMsgUnix(body, rights, nil)
	})
	return errors.Join(err, inner)
}

// receive takes one message of the helper's in, with so many files at most.
func receive(conn *net.UnixConn, into *answer, most int) ([]*os.File, error) {
	body, files, err := receiveMessage(conn, maxAnswer, most)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, into); err != nil {
		closeAll(files)
		return nil, fmt.Errorf("the network helper's answer: %w", err)
	}
	return files, nil
}

// err is what the helper says that went wrong.
func (a answer) err() error { return &contract.Quoted{Sentence: a.Error, Parts: a.Parts} }
