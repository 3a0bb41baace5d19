package device

import (
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// maxText bounds what Text reads, in bytes: a file of /sys has at most a page.
const maxText = 4096

// Text reads a short file of /sys or /proc without the white space around it. The error is that of the file.
func Text(path string) (string, error) {
	text, err := Head(path, maxText)
	return strings.TrimSpace(text), err
}

// Head reads the beginning of a file, up to limit bytes. It doesn't wait for a pipe's other end. The error is that of the file.
// Of a hundred small files a third of the time would go to what package os does beside reading.
func Head(path string, limit int) (string, error) {
	fd, err := Retry(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	})
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	content := make([]byte, min(limit, maxText))
	for length := 0; ; {
		n, err := Retry(func() (int, error) { return unix.Read(fd, content[length:]) })
		if err != nil {
			return "", &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if length += n; n == 0 || length == limit {
			return string(content[:length]), nil
		}
		if length == len(content) {
			content = append(content, make([]byte, min(limit-length, length))...)
		}
	}
}
