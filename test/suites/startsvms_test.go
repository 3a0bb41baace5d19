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
	unlock, err := lock(context.Background(), []string{path})
	if err != nil {
		os.Exit(1)
	}
	defer unlock()
	os.Stdout.WriteString("locked\n")
	bufio.NewReader(os.Stdin).ReadByte()
}

// TestLock: while another process has a file locked the next one is taken, and once all are, one waits until that
// process has ended.
func TestLock(t *testing.T) {
	path, second := filepath.Join(t.TempDir(), "lock"), filepath.Join(t.TempDir(), "lock")
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
	unlock, err := lock(t.Context(), []string{path, second})
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock(over, []string{path, second}); !errors.Is(err, unix.EWOULDBLOCK) || !strings.Contains(err.Error(), path) {
		t.Errorf("all locked: %v", err)
	}
	unlock()
	in.Close()
	unlock, err = lock(t.Context(), []string{path})
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
