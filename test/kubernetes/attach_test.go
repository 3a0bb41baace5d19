package kubernetes_test

import (
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/printed"
)

// attached is a kubectl that goes on: somebody's console, or log.
type attached struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	said *printed.Text
	n    *node
	done chan error
}

// attach starts kubectl, and ends it with the test.
func (n *node) attach(t *testing.T, args ...string) *attached {
	t.Helper()
	a := &attached{said: &printed.Text{}, n: n, done: make(chan error, 1)}
	a.cmd = exec.CommandContext(n.ctx, n.KubectlProgram(), append([]string{"--kubeconfig=" + n.Kubeconfig()}, args...)...)
	a.cmd.Stdout, a.cmd.Stderr = a.said, a.said
	var err error
	a.in, err = a.cmd.StdinPipe()
	must(t, err)
	must(t, a.cmd.Start())
	go func() { a.done <- a.cmd.Wait(); close(a.done) }()
	t.Cleanup(func() { _ = a.cmd.Process.Kill(); <-a.done })
	return a
}

func (a *attached) send(t *testing.T, text string) {
	t.Helper()
	_, err := io.WriteString(a.in, text)
	must(t, err)
}

// until waits for something to be said.
func (a *attached) until(t *testing.T, text string) {
	t.Helper()
	a.n.eventually(t, func() bool { return strings.Contains(a.said.String(), text) },
		func() string { return "nobody says " + text + ", but: " + a.said.String() })
}

// wait until it has ended well, and return what was said.
func (a *attached) wait(t *testing.T) string {
	t.Helper()
	must(t, <-a.done)
	return a.said.String()
}

// rest is what was said until the end, however that was.
func (a *attached) rest() string {
	<-a.done
	return a.said.String()
}

// ended: nothing more will be said.
func (a *attached) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// entry of the list that is an extended attribute of a file (linux/posix_acl_xattr.h).
const (
	aclHeader, aclEntry = 4, 8
	aclUser             = 0x02
)

// usersOf are the users that a file's access control list has.
func usersOf(t *testing.T, path string) (users []uint32) {
	t.Helper()
	b := make([]byte, 64<<10)
	n, err := unix.Getxattr(path, "system.posix_acl_access", b)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	must(t, err)
	for b = b[min(n, aclHeader):n]; len(b) >= aclEntry; b = b[aclEntry:] {
		if b[0] == aclUser {
			users = append(users, uint32(b[4])|uint32(b[5])<<8|uint32(b[6])<<16|uint32(b[7])<<24)
		}
	}
	return users
}
