package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/flock"
)

// lockName is the file in a folder whose lock says that an agent uses it.
const lockName = "agent.lock"

// Lock is an agent's claim on a folder; the kernel drops it with the process.
type Lock struct{ file *os.File }

// LockedError says that another agent uses a folder.
type LockedError struct {
	Folder string
	// PID of the other agent, 0 if it is not known.
	PID int
}

// Error names the directory and the other agent, and what to do.
func (e *LockedError) Error() string {
	who := "another agent"
	if e.PID != 0 {
		who = fmt.Sprintf("another agent, process %d,", e.PID)
	}
	return fmt.Sprintf("%s: %s uses this folder: stop it, or give this one folders of its own", e.Folder, who)
}

// Claim locks a folder for this process. The error is a *LockedError if
// another agent has it.
func Claim(folder string) (*Lock, error) {
	f, err := os.OpenFile(filepath.Join(folder, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &LockedError{Folder: folder, PID: holder(f)}
		}
		return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	if err := sign(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("writing %s: %w", f.Name(), err)
	}
	return &Lock{f}, nil
}

// childTime is how long a child of an agent that was killed may take to be the
// shim that it is to be: until then it has the agent's lock.
const childTime = 5 * time.Second

// lock waits for such a child, and for nobody else.
func lock(f *os.File) error {
	deadline := time.Now().Add(childTime)
	return flock.Wait(f, unix.LOCK_EX, func() bool {
		return time.Now().Before(deadline) && errors.Is(unix.Kill(holder(f), 0), unix.ESRCH)
	})
}

// Release gives the folder back.
func (l *Lock) Release() error { return l.file.Close() }

func sign(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder returns the process that holds the lock; 0: unknown.
func holder(f *os.File) int {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}
