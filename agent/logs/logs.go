// Package logs reads log files that another process appends to and rotates:
// NAME is written, NAME.1 is the one before, NAME.2 the one before that.
package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// maxRotated bounds how many rotated files are looked for.
const maxRotated = 100

// Options say what is read.
type Options struct {
	// Dir and Name of the log.
	Dir, Name string
	// TailLines is how many of the last lines are wanted; 0: all.
	TailLines int
	// Follow waits for more until the context ends.
	Follow bool
	// PieceSize is how many bytes are handed on at a time, at most.
	PieceSize int
}

// Read hands on the log's content, from the oldest file that is kept, and with
// Follow what is added, through any number of rotations. A log that is not
// there yet is empty. The bytes are the receiver's.
func Read(ctx context.Context, o Options, emit func([]byte) error) error {
	dir, err := os.OpenRoot(o.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	r := &reader{o: o, emit: emit, dir: dir}
	if o.Follow {
		// Watched before it is read, so that nothing is missed in between.
		w, err := newWatch(o.Dir)
		if err != nil {
			return err
		}
		defer w.close()
		defer context.AfterFunc(ctx, w.close)()
		r.watch = w
	}
	defer r.closeFile()
	if err := r.past(ctx); err != nil {
		return err
	}
	if !o.Follow {
		return nil
	}
	return r.follow(ctx)
}

type reader struct {
	o     Options
	emit  func([]byte) error
	watch *watch
	dir   *os.Root
	file  *os.File // the one being written, at the place where reading goes on
}

// numbered is the name of a file that was rotated n times.
func (r *reader) numbered(n int) string {
	if n == 0 {
		return r.o.Name
	}
	return fmt.Sprintf("%s.%d", r.o.Name, n)
}

// openFile opens a regular file of the folder. A pod's folder is the pod's to do
// with as it likes: it may have a link to a file of the node in place of a log, which
// os.Root refuses, or a FIFO, which is not waited for.
func (r *reader) openFile(name string) (*os.File, error) {
	f, err := r.dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no log: it is not a regular file (%v): %w", f.Name(), info.Mode(), fs.ErrInvalid)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (r *reader) closeFile() {
	if r.file != nil {
		r.file.Close()
	}
}

// past reads what is there.
func (r *reader) past(ctx context.Context) error {
	files, err := r.open()
	if err != nil {
		return err
	}
	defer func() {
		for _, f := range files {
			if f != r.file {
				f.Close()
			}
		}
	}()
	if err := skip(files, r.o.TailLines); err != nil {
		return err
	}
	for _, f := range files {
		if err := r.copy(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// open opens all files, the oldest first; the last becomes r.file if it is
// the one being written.
func (r *reader) open() ([]*os.File, error) {
	var files []*os.File
	current, err := r.openFile(r.o.Name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		r.file = current
		files = append(files, current)
	}
	for i := range maxRotated {
		f, err := r.openFile(r.numbered(i + 1))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			r.file = nil
			return nil, err
		}
		files = append([]*os.File{f}, files...)
	}
	return files, nil
}

// copy hands on what is left of a file.
func (r *reader) copy(ctx context.Context, f *os.File) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		buf := make([]byte, r.o.PieceSize)
		n, err := f.Read(buf)
		if n > 0 {
			if err := r.emit(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// follow hands on what is added.
func (r *reader) follow(ctx context.Context) error {
	for {
		if err := r.more(ctx); err != nil {
			return err
		}
		if err := r.watch.wait(); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
	}
}

// more reads on, and goes over to the new file after a rotation: the old one
// is read to its end first, as nothing is added to it any more.
func (r *reader) more(ctx context.Context) error {
	for {
		rotated, err := r.rotated()
		if err != nil {
			return err
		}
		if r.file != nil {
			if err := r.copy(ctx, r.file); err != nil {
				return err
			}
			if err := r.rewindIfCut(); err != nil {
				return err
			}
		}
		if !rotated {
			return nil
		}
		next := r.next()
		r.closeFile()
		r.file, err = r.openFile(next)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// next is the name of the file after the one that is open: it may have been
// rotated more than once.
func (r *reader) next() string {
	if r.file == nil {
		return r.o.Name
	}
	open, err := r.file.Stat()
	if err != nil {
		return r.o.Name
	}
	newer := r.o.Name
	for i := range maxRotated {
		name := r.numbered(i + 1)
		st, err := r.dir.Lstat(name)
		if err != nil {
			break
		}
		if os.SameFile(st, open) {
			return newer
		}
		newer = name
	}
	return r.o.Name
}

// rotated says whether another file than the one that is open has the name.
func (r *reader) rotated() (bool, error) {
	now, err := r.dir.Lstat(r.o.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || r.file == nil {
		return true, err
	}
	open, err := r.file.Stat()
	return err == nil && !os.SameFile(now, open), err
}

// rewindIfCut starts over when the file has become shorter than what was read.
func (r *reader) rewindIfCut() error {
	at, err := r.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	st, err := r.file.Stat()
	if err == nil && st.Size() < at {
		_, err = r.file.Seek(0, io.SeekStart)
	}
	return err
}

// skip leaves the files, the oldest first, so that reading all of them on
// gives their last lines; 0 lines are all.
func skip(files []*os.File, lines int) error {
	if lines <= 0 {
		return nil
	}
	newest := true
	for i := len(files) - 1; i >= 0; i-- {
		found, empty, err := seekTail(files[i], &lines, newest)
		if err != nil {
			return err
		}
		newest = newest && empty
		if !found {
			continue
		}
		for _, older := range files[:i] {
			if _, err := older.Seek(0, io.SeekEnd); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}

// seekTail looks for the beginning of the last lines, backwards, and counts
// down those that it passes. newest: a newline at the very end ends the last
// line and begins none.
func seekTail(f *os.File, lines *int, newest bool) (found, empty bool, err error) {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil || end == 0 {
		return false, true, err
	}
	buf := make([]byte, 16<<10)
	limit := end
	if newest {
		var last [1]byte
		if _, err := f.ReadAt(last[:], end-1); err != nil {
			return false, false, err
		}
		if last[0] == '\n' {
			limit--
		}
	}
	for at := limit; at > 0; {
		n := min(at, int64(len(buf)))
		at -= n
		if _, err := f.ReadAt(buf[:n], at); err != nil {
			return false, false, err
		}
		for piece := buf[:n]; ; {
			i := bytes.LastIndexByte(piece, '\n')
			if i < 0 {
				break
			}
			if *lines--; *lines == 0 {
				_, err := f.Seek(at+int64(i)+1, io.SeekStart)
				return true, false, err
			}
			piece = piece[:i]
		}
	}
	_, err = f.Seek(0, io.SeekStart)
	return false, false, err
}

// watch wakes when something changes in a folder (inotify(7)).
type watch struct{ file *os.File }

func newWatch(dir string) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	return &watch{os.NewFile(uintptr(fd), "inotify")}, nil
}

// wait returns when anything has changed; an error when it was closed.
func (w *watch) wait() error {
	// What changed does not matter: the log's file is looked at anyway.
	var buf [4096]byte
	_, err := w.file.Read(buf[:])
	return err
}

func (w *watch) close() { w.file.Close() }
