package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/posixacl"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/server/undo"
)

func TestConnect(t *testing.T) {
	dir := t.TempDir()
	// Longer than a socket's address can be.
	path := filepath.Join(dir, strings.Repeat("d", 120), "tpm")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(dir, "tpm")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	defer listener.Close()
	if err := os.Rename(short, path); err != nil {
		t.Fatal(err)
	}
	o := &opener{plan: new(plan.Plan)}
	file, err := o.one(t.Context(), &plan.File{Kind: plan.FileConnect, Path: path})
	if err != nil {
		t.Fatal(err)
	}
	peer, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if _, err := file.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	o.release() // the VMM has its own now
	if said, err := io.ReadAll(peer); string(said) != "x" || err != nil {
		t.Errorf("the other end read %q, %v", said, err)
	}

	listener.Close()
	if err := os.WriteFile(short, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		err  error
		text string
	}{
		path:                             {unix.ECONNREFUSED, "nobody listens"},
		filepath.Join(dir, "no"):         {unix.ENOENT, "no such file"},
		short:                            {nil, "is no socket"},
		"/proc/self/root" + short + "/x": {unix.ELOOP, ""},
	} {
		_, err := o.one(t.Context(), &plan.File{Kind: plan.FileConnect, Path: name})
		if err == nil || want.err != nil && !errors.Is(err, want.err) || !strings.Contains(err.Error(), want.text) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v, want %v, %q and the path", name, err, want.err, want.text)
		}
	}
}

// connectsVariable makes this program what TestSocket starts.
const connectsVariable = "VMLET_TEST_CONNECTS"

func TestConnectsAsOther(t *testing.T) {
	if os.Getenv(connectsVariable) == "" {
		t.Skip("it is started by TestSocket")
	}
	if _, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d", plan.FirstFile)); err != nil {
		t.Fatal(err)
	}
}

// TestSocket: another user may connect, for as long as the VMM runs.
func TestSocket(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "tpm")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := posixacl.Revoke(path, 1); errors.Is(err, unix.ENOTSUP) {
		t.Skip(err)
	}
	// The folder is closed to everybody, as the place is handed over.
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	o := &opener{plan: &plan.Plan{User: &plan.User{UID: 70001, GID: 70001}}, lock: dir, undo: new(undo.Stack)}
	place, err := o.one(t.Context(), &plan.File{Kind: plan.FileSocket, Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer o.release()
	connects := func() error {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestConnectsAsOther$")
		cmd.Dir, cmd.Env = "/", append(os.Environ(), connectsVariable+"=1")
		cmd.ExtraFiles = []*os.File{place}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 70001, Gid: 70001}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	if err := connects(); err != nil {
		t.Error(err)
	}
	if err := o.undo.Run(); err != nil {
		t.Fatal(err)
	}
	if err := connects(); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("afterwards: %v, want it refused", err)
	}
}
