package interrupted_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/interrupted"
)

func TestRetry(t *testing.T) {
	for _, last := range []error{nil, unix.EIO} {
		calls := 0
		n, err := interrupted.RetryInt(func() (int, error) {
			if calls++; calls < 3 {
				return -1, &os.PathError{Op: "open", Path: "x", Err: unix.EINTR}
			}
			return 7, last
		})
		if n != 7 || !errors.Is(err, last) || calls != 3 {
			t.Errorf("%d, %v after %d calls, want 7, %v after 3", n, err, calls, last)
		}
	}
}
