package suites

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// locker makes this program hold the lock that its value names, until its input ends.
const locker = "VMLET_TEST_LOCK"

func TestMain(m *testing.M) {
	path := os.Getenv(locker)
	if path == "" {
		os.Exit(m.Run())
	}
	unlock, err := lock(context.Background(), path)
	if err != nil {
		os.Exit(1)
	}
	defer unlock()
	os.Stdout.WriteString("locked\n")
	bufio.NewReader(os.Stdin).ReadByte()
}

// TestLock: what another process has locked is waited for, until that has ended.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), locker+"="+path), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock(over, path); !errors.Is(err, unix.EWOULDBLOCK) || !strings.Contains(err.Error(), path) {
		t.Errorf("locked by another: %v", err)
	}
	in.Close()
	unlock, err := lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
