package e2e

import (
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStrangersAreRefused has a user who is not root call the agent.
func TestStrangersAreRefused(t *testing.T) {
	const nobody = 65534
	n := newNode(t, nodeOptions{config: "allowedUsers: [65533]\n"})
	list := func(uid uint32) (code int, out string) {
		cmd := n.command("list", "-o", "name")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		text, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(text)
	}
	if code, out := list(nobody); code != 4 || !strings.Contains(out, "permission denied") {
		t.Errorf("a stranger gets exit code %d and %q", code, out)
	}
	if code, out := list(65533); code != 0 {
		t.Errorf("an allowed user gets exit code %d and %q", code, out)
	}
	// Whoever comes past the socket's mode is refused by the agent.
	n.must(unix.Chmod(n.socket(), 0o666))
	if code, out := list(nobody); code != 1 || !strings.Contains(out, "user 65534 may not use this agent") {
		t.Errorf("a stranger past the socket's mode gets exit code %d and %q", code, out)
	}
}
