package device

import (
	"io"
	"os"
	"strings"
	"syscall"
)

// maxText bounds what Text reads, in bytes: a file of /sys has at most a page.
const maxText = 4096

// Text reads a short file of /sys without the white space around it. It neither waits for a pipe's other end nor reads without
// end. The error is that of the file.
func Text(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxText))
	return strings.TrimSpace(string(content)), err
}
