package agent

import (
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/config"
)

// TestReadyNotifiesSystemd: systemd starts what comes after the agent when it has READY=1.
func TestReadyNotifiesSystemd(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	notified, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notified.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	called := false
	p := program{cfg: config.Config{Log: slog.New(slog.DiscardHandler), Ready: func() { called = true }}}
	p.ready()
	if err := notified.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	n, err := notified.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(b[:n]), "READY=1"; got != want {
		t.Errorf("systemd got %q, want %q", got, want)
	}
	if !called {
		t.Error("the configuration's Ready was not called")
	}
}
