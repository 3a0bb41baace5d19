package capabilities

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// What is asked of the kernel for every folder (inotify(7)). fsnotify, which is
// the library for this, has no way to leave out IN_MODIFY: with it every write
// to /dev/null on the machine would wake the agent.
const (
	folderMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_MASK_ADD
	writtenMask = unix.IN_CLOSE_WRITE
	// goneMask: a folder isn't there any more, or events were lost.
	goneMask = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_IGNORED | unix.IN_UNMOUNT | unix.IN_Q_OVERFLOW
)

// watchSet watches folders as they are at one moment.
type watchSet struct {
	file *os.File
	// patterns of names that matter, by watch descriptor.
	patterns map[int32][]string
	// changes gets a value when something that matters has changed; several
	// changes may be one value.
	changes chan struct{}
	failed  error
}

// newWatchSet watches all interests. A set that is returned with an error
// watches less than all.
func newWatchSet(interests []interest) (*watchSet, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w (see /proc/sys/fs/inotify/max_user_instances and the limit of open files)", err)
	}
	w := &watchSet{
		file: os.NewFile(uintptr(fd), "inotify"), patterns: map[int32][]string{}, changes: make(chan struct{}, 1),
	}
	for _, i := range interests {
		w.walk(fd, i)
	}
	// From here on the patterns are only read.
	go w.read()
	return w, w.failed
}

func (w *watchSet) close() { w.file.Close() }

// maxLinks is how many symbolic links the kernel follows in one path
// (path_resolution(7)).
const maxLinks = 40

// walk watches the way to a file: what isn't there yet, or is replaced, is
// noticed by the folder above. The way goes through symbolic links, too. Each
// folder is watched before it is looked into, so that nothing is missed.
func (w *watchSet) walk(fd int, i interest) {
	at, way, links := "/", split(i.path), 0
	for len(way) > 0 {
		name := way[0]
		if name == ".." {
			at, way = filepath.Dir(at), way[1:]
			continue
		}
		if !w.add(fd, at, literal(name), i.written && len(way) == 1) {
			return
		}
		target, err := os.Readlink(filepath.Join(at, name))
		if err != nil {
			at, way = filepath.Join(at, name), way[1:]
			continue
		}
		if links++; links > maxLinks {
			return
		}
		way = append(split(target), way[1:]...)
		if filepath.IsAbs(target) {
			at = "/"
		}
	}
	if i.inside != "" {
		w.add(fd, at, i.inside, i.written)
	}
}

// split returns the elements of a clean path.
func split(path string) []string {
	return strings.FieldsFunc(filepath.Clean(path), func(r rune) bool { return r == '/' })
}

// add watches a folder for names that fit a pattern. False: it isn't there, or
// can't be watched.
func (w *watchSet) add(fd int, folder, pattern string, written bool) bool {
	mask := uint32(folderMask)
	if written {
		mask |= writtenMask
	}
	wd, err := unix.InotifyAddWatch(fd, folder, mask)
	if err == nil {
		if !slices.Contains(w.patterns[int32(wd)], pattern) {
			w.patterns[int32(wd)] = append(w.patterns[int32(wd)], pattern)
		}
		return true
	}
	// A folder that isn't there is what the one above is watched for.
	if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) && w.failed == nil {
		w.failed = fmt.Errorf("inotify: %s: %w", folder, err)
		if errors.Is(err, unix.ENOSPC) {
			w.failed = fmt.Errorf("%w: raise /proc/sys/fs/inotify/max_user_watches", w.failed)
		}
	}
	return false
}

// read tells changes until the set is closed.
func (w *watchSet) read() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buffer)
		if err != nil {
			return // closed
		}
		if w.matters(buffer[:n]) {
			select {
			case w.changes <- struct{}{}:
			default: // one is told already
			}
		}
	}
}

// matters says whether any of these events (struct inotify_event, inotify(7))
// is about something of interest.
func (w *watchSet) matters(events []byte) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(events))
		mask := binary.NativeEndian.Uint32(events[4:])
		size := binary.NativeEndian.Uint32(events[12:])
		events = events[unix.SizeofInotifyEvent:]
		if uint64(size) > uint64(len(events)) {
			return true // the kernel never says so: look again
		}
		name, _, _ := bytes.Cut(events[:size], []byte{0})
		events = events[size:]
		if mask&goneMask != 0 || w.wanted(wd, string(name)) {
			return true
		}
	}
	return false
}

func (w *watchSet) wanted(wd int32, name string) bool {
	return slices.ContainsFunc(w.patterns[wd], func(pattern string) bool {
		fits, err := path.Match(pattern, name)
		return err != nil || fits
	})
}
