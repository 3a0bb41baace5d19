package run

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestGroup: what a script starts ends with it.
func TestGroup(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := Command(ctx, "/bin/sh", "-c", "sleep 1000 >/dev/null & echo $!; wait")
	child := childOf(t, cmd)
	cancel()
	if err := cmd.Wait(); err == nil {
		t.Error("it ended well")
	}
	wantEnd(t, child)
}

// TestParentDies: the program doesn't outlive the process that asks it, whatever
// ends that.
func TestParentDies(t *testing.T) {
	if os.Getenv("RUN_TEST_PARENT") != "" {
		runtime.LockOSThread()
		cmd := Command(t.Context(), "/bin/sh", "-c", "echo $$; exec sleep 1000")
		cmd.Stdout = os.Stdout
		t.Fatal(cmd.Run())
	}
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestParentDies$")
	parent.Env = append(os.Environ(), "RUN_TEST_PARENT=1")
	child := childOf(t, parent)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed
	wantEnd(t, child)
}

// childOf starts a command that prints the number of a process, and returns that
// process.
func childOf(t *testing.T, cmd *exec.Cmd) (pidfd int) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func wantEnd(t *testing.T, pidfd int) {
	t.Helper()
	ended := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(ended, 30_000)
		if err == unix.EINTR {
			continue
		}
		if n != 1 {
			t.Errorf("it is left (%v)", err)
			_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		}
		return
	}
}
