package console

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// NewTerminal is New for a VMM that reads and writes a terminal: it returns the
// VMM's end twice, to read and to write. Each is an open file of its own, since a
// VMM may make the one non-blocking, and would lose output if that were the other.
func NewTerminal(log io.Writer) (c *Console, in, out *os.File, err error) {
	// Non-blocking, so that Close ends a Read.
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("console: %w", &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err})
	}
	own := os.NewFile(uintptr(fd), "console")
	if in, out, err = otherEnds(fd); err != nil {
		own.Close()
		return nil, nil, nil, fmt.Errorf("console: %w", err)
	}
	return begin(own, log), in, out, nil
}

// otherEnds opens a terminal's other end twice. It is in raw mode: bytes go through
// as they are.
func otherEnds(own int) (in, out *os.File, err error) {
	if err := unix.IoctlSetPointerInt(own, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, os.NewSyscallError("ioctl TIOCSPTLCK", err)
	}
	if in, err = otherEnd(own); err != nil {
		return nil, nil, err
	}
	if _, err := term.MakeRaw(int(in.Fd())); err != nil {
		in.Close()
		return nil, nil, fmt.Errorf("raw mode: %w", err)
	}
	if out, err = otherEnd(own); err != nil {
		in.Close()
		return nil, nil, err
	}
	return in, out, nil
}

// otherEnd goes by the descriptor (TIOCGPTPEER, ioctl_tty(2)), whatever is mounted
// on /dev/pts.
func otherEnd(own int) (*os.File, error) {
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(own), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return nil, os.NewSyscallError("ioctl TIOCGPTPEER", errno)
	}
	return os.NewFile(fd, "terminal"), nil
}
