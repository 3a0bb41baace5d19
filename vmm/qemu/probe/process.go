package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/vmm/internal/run"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
)

// probeTimeout is how long a QEMU without a machine may take to say all. It takes 0.2 s, and
// more than 20 s in a pod with a small share of a node on which many VMs start at once. It
// bounds what a stuck device driver can cost.
const probeTimeout = time.Minute

// maxReply bounds one of its replies, in bytes. The longest is the schema, of
// 236 KiB in QEMU 10.0.
const maxReply = 4 << 20

// maxStderr bounds what is kept of a program's complaints, in bytes.
const maxStderr = 1 << 10

// bare is a QEMU without a machine, only there to be asked.
type bare struct {
	client *qmp.Client
	cmd    *exec.Cmd
	stderr *run.Tail
	cancel context.CancelFunc
}

// startBare runs the program with this accelerator. The monitor is a socket pair:
// there is no name to bind and nothing to wait for.
func startBare(ctx context.Context, binary, accelerator string) (*bare, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	b := &bare{cancel: cancel, stderr: &run.Tail{Limit: maxStderr}}
	if err := b.start(ctx, binary, accelerator); err != nil {
		cancel()
		return nil, err
	}
	return b, nil
}

func (b *bare) start(ctx context.Context, binary, accelerator string) error {
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	b.cmd = run.Command(ctx, binary,
		"-no-user-config", "-nodefaults", "-display", "none", "-S",
		"-machine", "none", "-accel", accelerator,
		"-chardev", "socket,id=monitor,fd=3", "-mon", "chardev=monitor,mode=control")
	b.cmd.ExtraFiles = []*os.File{theirs}
	b.cmd.Stderr = b.stderr
	err = b.cmd.Start()
	theirs.Close()
	if err != nil {
		ours.Close()
		return fmt.Errorf("running QEMU: %w", err)
	}
	b.client, err = qmp.New(ctx, ours, qmp.WithMaxMessageSize(maxReply))
	if err != nil {
		b.end() // or it has ended by itself: stderr says more
		return b.explain(err)
	}
	return nil
}

// end kills the program, which holds nothing that quit would have to save.
func (b *bare) end() {
	// That there is none any more is as well. While it has not been waited for
	// its number is no other's.
	_ = run.Kill(b.cmd)
	b.cancel()
	_ = b.cmd.Wait() // how it ended says nothing: it was killed
}

// stop ends the program and the connection to it.
func (b *bare) stop() {
	b.client.Close()
	b.end()
}

// complaint is an error of a program that said something on its stderr.
type complaint struct {
	words string
	error
}

func (c *complaint) Unwrap() error { return c.error }

// explain adds what the program complained of. It must have ended.
func (b *bare) explain(err error) error {
	words := b.stderr.Line()
	if words == "" {
		return fmt.Errorf("QEMU at %s: %w", b.cmd.Path, err)
	}
	return &complaint{words, fmt.Errorf("QEMU at %s: %s: %w", b.cmd.Path, words, err)}
}

// lasting says whether a failure is one that stays until something changes which
// the key of an answer has: the accelerator isn't built in, or the kernel refuses
// it. Of all else (no memory, a time limit, a crash) nobody knows.
func lasting(err error) bool {
	var said *complaint
	if !errors.As(err, &said) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	return strings.Contains(said.words, "invalid accelerator") || run.Refused(said.words)
}

func socketPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "monitor"), os.NewFile(uintptr(fds[1]), "monitor")
	defer ours.Close() // FileConn duplicates it
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn, theirs, nil
}
