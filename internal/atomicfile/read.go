package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ReadOwn reads a file of at most limit bytes that this user, and nobody else,
// can have written. Anything else is an error: a link, a pipe, another's file, one
// that others may write, one that is larger. It doesn't wait.
func ReadOwn(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, errors.New("it is not a file")
	case st.Uid != uint32(os.Geteuid()) || st.Mode&0o022 != 0:
		return nil, fmt.Errorf("its owner is uid %d and its mode %04o: it could be another user's words", st.Uid, st.Mode&0o7777)
	case st.Size > limit:
		return nil, fmt.Errorf("it has %d bytes, and %d at most are expected", st.Size, limit)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}
