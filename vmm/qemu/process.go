package qemu

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
)

// probeTimeout is how long a QEMU without a machine may take to say all: a
// hundred times what it takes on a slow machine. It bounds what a stuck device
// driver can cost.
const probeTimeout = 20 * time.Second

// maxReply bounds one of its replies, in bytes. The longest is the schema, of
// 236 KiB in QEMU 10.0.
const maxReply = 4 << 20

// maxStderr bounds what is kept of a program's complaints, in bytes.
const maxStderr = 4 << 10

// bare is a QEMU without a machine, only there to be asked.
type bare struct {
	client *qmp.Client
	cmd    *exec.Cmd
	stderr *tail
	cancel context.CancelFunc
}

// startBare runs the program with this accelerator. The monitor is a socket pair:
// there is no name to bind and nothing to wait for.
func startBare(ctx context.Context, binary, accelerator string) (*bare, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	b := &bare{cancel: cancel, stderr: &tail{limit: maxStderr}}
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
	b.cmd = exec.CommandContext(ctx, binary,
		"-no-user-config", "-nodefaults", "-display", "none", "-S",
		"-machine", "none", "-accel", accelerator,
		"-chardev", "socket,id=monitor,fd=3", "-mon", "chardev=monitor,mode=control")
	b.cmd.ExtraFiles = []*os.File{theirs}
	b.cmd.Stderr = b.stderr
	b.cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	err = b.cmd.Start()
	theirs.Close()
	if err != nil {
		ours.Close()
		return fmt.Errorf("running QEMU: %w", err)
	}
	b.client, err = qmp.New(ctx, ours, qmp.WithMaxMessageSize(maxReply))
	if err != nil {
		b.cancel()
		b.cmd.Wait() // killed, or ended by itself: stderr says more
		return b.explain(err)
	}
	return nil
}

// explain adds what the program complained of.
func (b *bare) explain(err error) error {
	if words := b.stderr.lines(); words != "" {
		return fmt.Errorf("QEMU at %s: %s: %w", b.cmd.Path, words, err)
	}
	return fmt.Errorf("QEMU at %s: %w", b.cmd.Path, err)
}

// stop ends the program: it holds nothing that quit would have to save.
func (b *bare) stop() {
	b.client.Close()
	b.cancel()
	b.cmd.Wait()
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

// tail keeps the end of what is written to it.
type tail struct {
	limit int
	text  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - t.limit; over > 0 {
		t.text = append([]byte(nil), t.text[over:]...)
	}
	return len(p), nil
}

func (t *tail) lines() string {
	return strings.Join(strings.Split(string(bytes.TrimSpace(t.text)), "\n"), "; ")
}
