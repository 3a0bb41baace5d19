package device

import (
	"io"
	"os"
	"strings"
	"syscall"
)

// maxText bounds what Text reads, in bytes: a file of /sys has at most a page.
const maxText = 4096

// Text reads a short file of /sys or /proc without the white space around it. The error is that of the file.
func Text(path string) (string, error) {
	text, err := Head(path, maxText)
	return strings.TrimSpace(text), err
}

// Head reads the beginning of a file, up to limit bytes. It doesn't wait for a pipe's other end. The error is that of the file.
func Head(path string, limit int64) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, limit))
	return string(content), err
}
