package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/lease/server"
	"github.com/vmlet/vmlet/test/podlink"
)

// withoutRights makes this program a server, of the configuration that is its value, on the
// sockets that it inherits, until its input ends.
const withoutRights = "VMLET_TEST_LEASE"

func TestMain(m *testing.M) {
	text := os.Getenv(withoutRights)
	if text == "" {
		os.Exit(m.Run())
	}
	c := new(lease.Config)
	err := json.Unmarshal([]byte(text), c)
	if err == nil {
		var s *server.Server
		sockets := lease.Sockets{IPv4: os.NewFile(3, "IPv4"), IPv6: os.NewFile(4, "IPv6"), Port: os.NewFile(5, "port")}
		if s, err = server.New(sockets, c, slog.New(slog.NewTextHandler(os.Stderr, nil))); err == nil {
			go func() {
				_, _ = io.Copy(io.Discard, os.Stdin)
				s.Close()
			}()
			s.Serve(context.Background())
			return
		}
	}
	slog.Error("serve", "error", err)
	os.Exit(1)
}

// TestNoRights: who serves is nobody, in any network namespace.
func TestNoRights(t *testing.T) {
	l := newLink(t)
	l.AddAddress("fe80::1/64")
	c := masquerade()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	sockets := l.Sockets()
	defer sockets.Close()
	cmd := exec.CommandContext(l.Context, readable(t))
	cmd.Env, cmd.Stderr, cmd.ExtraFiles = []string{withoutRights + "=" + string(text)}, l.log, sockets.Files()
	cmd.SysProcAttr = &unix.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l.Up()
	script, notes := l.Script()
	l.Run(podlink.Busybox(t), "udhcpc", "-f", "-q", "-i", "eth0", "-s", script)
	l.Expect(notes, []string{"ip=10.0.2.2"})
	l.Await("a default route", func() bool { return strings.Contains(l.routes(), "default via fe80::1 dev eth0") })
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// readable returns the path of a copy of this program that everybody can start.
func readable(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "vmlet-lease")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "program")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, program, 0o755)); err != nil {
		t.Fatal(err)
	}
	return path
}
