package sysfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// maxFile bounds what is read of one file, in bytes. A file of /sys has at most
// a page, and the longest that is read of /proc, cpuinfo, is read by its head.
const maxFile = 256 << 10

// maxEntries bounds what is listed of one folder.
const maxEntries = MaxID

// reader reads files and keeps the notes. It is not safe for concurrent use.
type reader struct {
	roots Roots
	notes []Note
}

func (r *reader) note(path, format string, args ...any) {
	r.notes = append(r.notes, Note{Path: path, Message: fmt.Sprintf(format, args...)})
}

// failed notes an error, unless it says that there is no such file: what isn't
// there on a machine is no fault of it. ENODEV and ENXIO are what sysfs answers
// for a fact that its device doesn't have; EINVAL what some drivers do.
func (r *reader) failed(path string, err error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) ||
		errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.EINVAL) {
		return
	}
	var perr *fs.PathError
	if errors.As(err, &perr) {
		err = perr.Err
	}
	r.note(path, "%v", err)
}

// text returns a file's content without the white space around it; false if
// there is none.
func (r *reader) text(path string) (string, bool) {
	content, err := readFile(path)
	if err != nil {
		r.failed(path, err)
		return "", false
	}
	return strings.TrimSpace(content), true
}

// readFile doesn't wait for a pipe's other end, and reads no more than maxFile.
func readFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(content), err
}

// number reads a whole number; base 0 takes "0x" too.
func (r *reader) number(path string) (int64, bool) {
	text, ok := r.text(path)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		r.note(path, "%.40q is not a number", text)
		return 0, false
	}
	return n, true
}

// list reads a list of CPUs or nodes.
func (r *reader) list(path string) (IDList, bool) {
	text, ok := r.text(path)
	if !ok {
		return IDList{}, false
	}
	list, err := ParseIDList(text)
	if err != nil {
		r.note(path, "%v", err)
		return IDList{}, false
	}
	return list, true
}

// names lists a folder, sorted; nil if there is none.
func (r *reader) names(path string) []string {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_DIRECTORY, 0)
	if err != nil {
		r.failed(path, err)
		return nil
	}
	defer f.Close()
	names, err := f.Readdirnames(maxEntries)
	if err != nil && err != io.EOF {
		r.failed(path, err)
	}
	slices.Sort(names)
	return names
}

// link returns the last element of what a symbolic link points to, which is how
// sysfs names a driver, a group, a parent; false if there is none.
func (r *reader) link(path string) (string, bool) {
	target, err := os.Readlink(path)
	if err != nil {
		r.failed(path, err)
		return "", false
	}
	return filepath.Base(target), true
}
