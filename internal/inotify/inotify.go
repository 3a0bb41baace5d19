// Package inotify tells that files and folders come, go and change: also those
// that aren't there yet, and also on the way through symbolic links.
package inotify

import (
	"bytes"
	"encoding/binary"
	"errors"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Interest is a file or folder whose coming, going and changing matter.
type Interest struct {
	Path string
	// Inside is the pattern of what matters in the folder, as path.Match takes
	// it; empty: nothing.
	Inside string
	// Written: that its content is written matters, too. Not with devices:
	// somebody always writes to one.
	Written bool
}

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

// Set watches folders as they are at one moment: after a change make a new one,
// then close the old one, then look, and nothing is missed.
type Set struct {
	file *os.File
	// patterns of names that matter, by watch descriptor.
	patterns map[int32][]string
	changes  chan struct{}
	done     chan struct{} // closed: nothing is read any more
	failed   error
}

// Watch watches all interests. A set that is returned with an error watches less
// than all; without a set nothing can be watched. The error says what to raise.
func Watch(interests []Interest) (*Set, error) {
	instance, err := newInstance()
	if err != nil {
		return nil, err
	}
	s := &Set{
		file: instance.file, patterns: map[int32][]string{},
		changes: make(chan struct{}, 1), done: make(chan struct{}),
	}
	for _, i := range interests {
		if i.Path, err = filepath.Abs(i.Path); err != nil {
			s.failed = errors.Join(s.failed, err)
			continue
		}
		s.walk(instance.fd, i)
	}
	// From here on the patterns are only read.
	go s.read()
	return s, s.failed
}

// Changes gets a value when something that matters has changed; several changes
// may be one value.
func (s *Set) Changes() <-chan struct{} { return s.changes }

// Close ends the watch and gives back all that it took.
func (s *Set) Close() {
	s.file.Close()
	<-s.done
}

// maxLinks is how many symbolic links the kernel follows in one path
// (path_resolution(7)).
const maxLinks = 40

// walk watches the way to a file: what isn't there yet, or is replaced, is
// noticed by the folder above. The way goes through symbolic links, too. Each
// folder is watched before it is looked into, so that nothing is missed.
func (s *Set) walk(fd int, i Interest) {
	at, way, links := "/", split(i.Path), 0
	for len(way) > 0 {
		name := way[0]
		if name == ".." {
			at, way = filepath.Dir(at), way[1:]
			continue
		}
		if !s.add(fd, at, Literal(name), i.Written && len(way) == 1) {
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
	if i.Inside != "" {
		s.add(fd, at, i.Inside, i.Written)
	}
}

// split returns the elements of a clean path.
func split(path string) []string {
	return strings.FieldsFunc(filepath.Clean(path), func(r rune) bool { return r == '/' })
}

// add watches a folder for names that fit a pattern. False: it isn't there, or
// can't be watched.
func (s *Set) add(fd int, folder, pattern string, written bool) bool {
	mask := uint32(folderMask)
	if written {
		mask |= writtenMask
	}
	wd, err := unix.InotifyAddWatch(fd, folder, mask)
	if err == nil {
		if !slices.Contains(s.patterns[int32(wd)], pattern) {
			s.patterns[int32(wd)] = append(s.patterns[int32(wd)], pattern)
		}
		return true
	}
	// A folder that isn't there is what the one above is watched for.
	if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) && s.failed == nil {
		s.failed = watchFailed(folder, err)
	}
	return false
}

// read tells changes until the set is closed.
func (s *Set) read() {
	defer close(s.done)
	buffer := make([]byte, 64<<10)
	for {
		n, err := s.file.Read(buffer)
		if err != nil {
			return // closed
		}
		if s.matters(buffer[:n]) {
			select {
			case s.changes <- struct{}{}:
			default: // one is reported already
			}
		}
	}
}

// matters says whether any of these events is about something of interest.
func (s *Set) matters(events []byte) bool {
	for e := range parse(events) {
		if e.mask&goneMask != 0 || s.wanted(e.wd, e.name) {
			return true
		}
	}
	return false
}

// event is struct inotify_event (inotify(7)).
type event struct {
	wd   int32
	mask uint32
	name string
}

// parse returns the events of a buffer. One that is cut off, as the kernel never does,
// reads as lost events.
func parse(buffer []byte) iter.Seq[event] {
	return func(yield func(event) bool) {
		for len(buffer) >= unix.SizeofInotifyEvent {
			e := event{wd: int32(binary.NativeEndian.Uint32(buffer)), mask: binary.NativeEndian.Uint32(buffer[4:])}
			size := binary.NativeEndian.Uint32(buffer[12:])
			buffer = buffer[unix.SizeofInotifyEvent:]
			if uint64(size) > uint64(len(buffer)) {
				yield(event{mask: unix.IN_Q_OVERFLOW})
				return
			}
			name, _, _ := bytes.Cut(buffer[:size], []byte{0})
			e.name, buffer = string(name), buffer[size:]
			if !yield(e) {
				return
			}
		}
	}
}

func (s *Set) wanted(wd int32, name string) bool {
	return slices.ContainsFunc(s.patterns[wd], func(pattern string) bool {
		fits, err := path.Match(pattern, name)
		return err != nil || fits
	})
}

// Literal is the pattern that fits this name alone.
func Literal(name string) string {
	var out []rune
	for _, r := range name {
		switch r {
		case '*', '?', '[', ']', '\\', '-', '^':
			out = append(out, '\\')
		}
		out = append(out, r)
	}
	return string(out)
}
