package e2e

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"github.com/vmlet/vmlet/test/guest"
)

// TestOppositeOperations asks for what does not fit the state, and for what is
// so already.
func TestOppositeOperations(t *testing.T) {
	n := newNode(t, nodeOptions{})
	spec := pvh(t, "states", "emulation", guest.PVHOptions{})
	v := n.create(spec)
	image := filepath.Join(t.TempDir(), "image")

	ask := map[string]func() error{
		"start":  func() error { return v.start(false) },
		"save":   func() error { return v.trySave(image) },
		"pause":  func() error { _, err := n.api.PauseVM(n.ctx, &vmletv1.PauseVMRequest{Name: v.name}); return err },
		"resume": func() error { _, err := n.api.ResumeVM(n.ctx, &vmletv1.ResumeVMRequest{Name: v.name}); return err },
		"reset":  func() error { _, err := n.api.ResetVM(n.ctx, &vmletv1.ResetVMRequest{Name: v.name}); return err },
		"stop":   func() error { _, err := n.api.StopVM(n.ctx, &vmletv1.StopVMRequest{Name: v.name}); return err },
		"kill":   func() error { _, err := n.api.KillVM(n.ctx, &vmletv1.KillVMRequest{Name: v.name}); return err },
		"delete": func() error { _, err := n.api.DeleteVM(n.ctx, &vmletv1.DeleteVMRequest{Name: v.name}); return err },
		"create": func() error { _, err := n.api.CreateVM(n.ctx, &vmletv1.CreateVMRequest{Spec: spec}); return err },
		"create another": func() error {
			other := proto.CloneOf(spec)
			other.Memory.Size = "96Mi"
			_, err := n.api.CreateVM(n.ctx, &vmletv1.CreateVMRequest{Spec: other})
			return err
		},
		"console": func() error {
			stream, err := n.api.AttachConsole(n.ctx)
			n.must(err)
			n.must(stream.Send(&vmletv1.AttachConsoleRequest{Name: v.name}))
			_, err = stream.Recv()
			return err
		},
	}
	refuses := func(state string, operations ...string) {
		t.Helper()
		for _, op := range operations {
			refused(t, ask[op](), codes.FailedPrecondition, v.name, state)
		}
	}
	allows := func(operations ...string) {
		t.Helper()
		for _, op := range operations {
			if err := ask[op](); err != nil {
				t.Errorf("%s: %v", op, err)
			}
		}
	}
	refuses("created", "save", "pause", "resume", "reset", "console")
	refused(t, ask["create another"](), codes.AlreadyExists, v.name)
	allows("create", "stop", "kill")
	v.is(created)

	allows("start", "create")
	v.count()
	refuses("running", "start", "delete")
	allows("resume", "pause", "pause")
	refuses("paused", "start", "delete")
	allows("resume", "resume")
	v.countsOn()
	allows("kill", "kill", "stop")

	v.is(stopped)
	refuses("stopped", "save", "pause", "resume", "reset", "console")
	allows("start", "save")
	v.is(saved)
	refuses("saved", "save", "pause", "resume", "reset", "console")
	allows("stop", "kill")
	v.is(saved)

	// A cold start boots afresh, and the image is no longer the VM's.
	_, err := last(n.api.StartVM(n.ctx, &vmletv1.StartVMRequest{Name: v.name, Cold: true}))
	v.must(err)
	says(t, v.is(running), image)
	v.kill()
	if ref := v.is(stopped).GetImage(); ref != nil {
		t.Errorf("after a cold start the VM still has the image %v", ref)
	}
	n.verify(image)
	allows("delete")
	for _, op := range []string{"start", "save", "pause", "resume", "reset", "stop", "kill", "delete", "console"} {
		refused(t, ask[op](), codes.NotFound, v.name)
	}
}

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
