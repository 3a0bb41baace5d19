package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/agent/config"
	"github.com/vmlet/vmlet/podnet/helper"
)

func withHelper(t *testing.T, wanted bool) config.Config {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("capabilities are root's")
	}
	cfg, err := config.Config{Network: config.NetworkConfig{Helper: &wanted}, Log: slog.New(slog.DiscardHandler)}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestAgentEndsWithItsHelper: only a new agent has the rights to start another.
func TestAgentEndsWithItsHelper(t *testing.T) {
	p := &program{cfg: withHelper(t, true)}
	startHelper(p.cfg)
	noted := os.Getenv(helper.Variable)
	startHelper(p.cfg) // as in the program that execve(2) makes
	if again := os.Getenv(helper.Variable); again != noted || noted == "" {
		t.Fatalf("started twice: %q, %q", noted, again)
	}
	_, text, _ := strings.Cut(noted, ":")
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	life, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	client, err := p.networkHelper(life, func(err error) { ended <- err })
	if err != nil || client == nil {
		t.Fatalf("%v, %v", client, err)
	}
	if err := client.Refused(life); err != nil {
		t.Skip(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, helper.ErrEnded) {
		t.Error(err)
	}
	stop()
	p.background.Wait()
}

// TestNoHelper: the configuration has the last word.
func TestNoHelper(t *testing.T) {
	p := &program{cfg: withHelper(t, false)}
	startHelper(p.cfg)
	if noted := os.Getenv(helper.Variable); noted != "" {
		t.Errorf("started: %s", noted)
	}
	client, err := p.networkHelper(t.Context(), func(error) {})
	if client != nil || err != nil {
		t.Errorf("%v, %v", client, err)
	}
}
