// Package interrupted repeats system calls that a signal has interrupted. On local
// filesystems those on files never are, on NFS and FUSE they may be, also by the
// signals of Go's own runtime. Package os does so by itself, x/sys/unix does not.
package interrupted

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Retry calls until the error is another than EINTR.
func Retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// RetryInt is Retry for calls that return a number, of bytes or of a descriptor.
func RetryInt(call func() (int, error)) (n int, err error) {
	err = Retry(func() (err error) {
		n, err = call()
		return err
	})
	return n, err
}
