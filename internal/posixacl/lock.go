package posixacl

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/flock"
)

// lockPatience is how long another process may take to change a list.
const lockPatience = 10 * time.Second

// Exclusively calls do with a lock (flock(2)) held on a file or folder: processes
// that change the same list serialise their changes so. It must be one that nobody
// who isn't trusted gets hold of; one that stays locked is an error after a while.
func Exclusively(path string, do func() error) error {
	lock, err := os.Open(path)
	if err != nil {
		return err
	}
	defer lock.Close() // which ends the lock
	deadline := time.Now().Add(lockPatience)
	err = flock.Wait(lock, unix.LOCK_EX, func() bool { return time.Now().Before(deadline) })
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("%s: another process has had it locked (flock) for %v", path, lockPatience)
	case err != nil:
		return &os.PathError{Op: "flock", Path: path, Err: err}
	}
	return do()
}
