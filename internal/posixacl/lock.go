package posixacl

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
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
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return do()
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EWOULDBLOCK):
			return &os.PathError{Op: "flock", Path: path, Err: err}
		case time.Now().After(deadline):
			return fmt.Errorf("%s: another process has had it locked (flock) for %v", path, lockPatience)
		default: // flock(2) itself waits for ever, and tells nobody
			time.Sleep(time.Millisecond)
		}
	}
}
