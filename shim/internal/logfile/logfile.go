// Package logfile keeps logs that cannot grow without bound: what a guest or a
// VMM writes is not under our control.
package logfile

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/shim/internal/rundir"
)

// Limits bound a log.
type Limits struct {
	// Size in bytes from which a file makes way for the next.
	Size int64
	// Files that there are at most: NAME, NAME.1 and so on, the newest first.
	Files int
}

// Default is 1 MiB in each of three files.
func Default() Limits { return Limits{Size: 1 << 20, Files: 3} }

// File is a log. Its methods may be called concurrently.
type File struct {
	dir    *rundir.Dir
	name   string
	limits Limits

	mu   sync.Mutex
	file *os.File // nil: could not be opened
	size int64
	lost int64 // bytes since the last that could be written
}

// Open opens a log to append to it.
func Open(dir *rundir.Dir, name string, limits Limits) (*File, error) {
	f := &File{dir: dir, name: name, limits: limits}
	if err := f.open(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) open() error {
	file, err := f.dir.OpenFile(f.name, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND|unix.O_NOCTTY, 0o600)
	if err != nil {
		return err
	}
	st, err := file.Stat()
	if err != nil {
		file.Close()
		return err
	}
	f.file, f.size = file, st.Size()
	return nil
}

// Write appends b, and never fails: a full disk must not stop a guest. What
// could not be written is counted, and said in the log when there is room again.
func (f *File) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for rest := b; len(rest) > 0; {
		room := f.room()
		if room <= 0 {
			f.lost += int64(len(rest))
			break
		}
		part := rest[:min(int64(len(rest)), room)]
		f.put(part)
		rest = rest[len(part):]
	}
	return len(b), nil
}

// room is how many bytes the open file may take; none where there is no file, or one
// that is full and could be neither renamed nor truncated.
func (f *File) room() int64 {
	if f.file == nil && f.open() != nil {
		return 0
	}
	f.rotate()
	if f.file == nil && f.open() != nil {
		return 0
	}
	return f.limits.Size - f.size
}

func (f *File) put(b []byte) {
	if f.lost > 0 {
		n, err := fmt.Fprintf(f.file, "\n[%d bytes were lost: they could not be written]\n", f.lost)
		f.size += int64(n)
		if err == nil {
			f.lost = 0
		}
	}
	n, _ := f.file.Write(b)
	f.size += int64(n)
	f.lost += int64(len(b) - n)
}

// rotate makes room if the file is full. If files can't be renamed the log
// starts again: its bound comes first.
func (f *File) rotate() {
	if f.size < f.limits.Size {
		return
	}
	for n := f.limits.Files - 1; n > 0; n-- {
		if f.dir.Rename(f.numbered(n-1), f.numbered(n)) != nil && n == 1 {
			_ = f.file.Truncate(0)
		}
	}
	if f.limits.Files <= 1 {
		_ = f.file.Truncate(0)
	}
	f.file.Close()
	f.file, f.size = nil, 0
}

func (f *File) numbered(n int) string {
	if n == 0 {
		return f.name
	}
	return fmt.Sprintf("%s.%d", f.name, n)
}

// Close closes the log; nothing may be written any more.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
