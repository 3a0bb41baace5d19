// Package run starts a VMM's program to ask it something, so that nothing of it
// is left.
package run

import (
	"context"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Command is exec.CommandContext for a program that is only asked. It gets nothing
// of the environment, and is the first of a process group, which is killed when
// ctx ends: a script's children, too. It also dies with the thread that starts it,
// and so with this process however that ends: the caller locks its goroutine to
// the thread (runtime.LockOSThread) until the program has ended. Wait doesn't wait
// for a child that left the group and keeps a pipe open.
func Command(ctx context.Context, binary string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return Kill(cmd) }
	cmd.WaitDelay = time.Second
	return cmd
}

// Kill kills a program of Command that was started and not waited for yet, and
// all of its group.
func Kill(cmd *exec.Cmd) error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
