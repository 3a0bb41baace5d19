package inotify

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// maxEvents is how many events of a folder are read before it is no longer watched, until
// the next Arm. A writer to the folder could otherwise keep the reader busy and overflow
// the kernel's queue, which all folders share. A shim makes some ten files.
const maxEvents = 256

// arrivalMask is how a name comes into a folder (inotify(7)).
const arrivalMask = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW

// Shared is one inotify instance for any number of folders: the kernel gives each user
// few instances (fs.inotify.max_user_instances), and many watches. The zero Shared is ready
// to use and has no instance before one is needed. It may be used concurrently.
type Shared struct {
	mu       sync.Mutex
	instance *instance // nil: there is none yet
	folders  map[int32][]*Folder
}

// Folder is one folder in which names are waited for.
type Folder struct {
	shared  *Shared
	dir     string
	names   []string
	changes chan struct{}
	// Guarded by shared.mu.
	wd     int32 // 0: not watched
	events int   // since it was armed
}

// Folder waits for these names in dir once it is armed.
func (s *Shared) Folder(dir string, names ...string) *Folder {
	return &Folder{shared: s, dir: dir, names: names, changes: make(chan struct{}, 1)}
}

// Changes gets a value when a name may have come since Arm. It never closes, and is
// never nil.
func (f *Folder) Changes() <-chan struct{} { return f.changes }

// Arm watches the folder, if it is not watched already: call it before each look, and
// nothing is missed. After an error nothing is watched, and Changes stays silent. The
// error says what to raise.
func (f *Folder) Arm() error {
	s := f.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	f.events = 0
	if f.wd != 0 {
		return nil
	}
	if err := s.open(); err != nil {
		return err
	}
	wd, err := unix.InotifyAddWatch(s.instance.fd, f.dir, arrivalMask)
	if err != nil {
		return watchFailed(f.dir, err)
	}
	f.wd = int32(wd)
	s.folders[f.wd] = append(s.folders[f.wd], f)
	return nil
}

// Close ends the watch.
func (f *Folder) Close() {
	f.shared.mu.Lock()
	defer f.shared.mu.Unlock()
	f.drop()
}

// drop ends the watch; shared.mu is held. The kernel does so by itself when the folder
// goes.
func (f *Folder) drop() {
	s, wd := f.shared, f.wd
	if wd == 0 {
		return
	}
	f.wd = 0
	s.folders[wd] = slices.DeleteFunc(s.folders[wd], func(other *Folder) bool { return other == f })
	if len(s.folders[wd]) == 0 {
		delete(s.folders, wd)
		_, _ = unix.InotifyRmWatch(s.instance.fd, uint32(wd))
	}
}

func (f *Folder) notify() {
	select {
	case f.changes <- struct{}{}:
	default: // one is pending
	}
}

// open makes the instance, if there is none; mu is held.
func (s *Shared) open() error {
	if s.instance != nil {
		return nil
	}
	i, err := newInstance()
	if err != nil {
		return err
	}
	s.instance, s.folders = i, make(map[int32][]*Folder)
	go s.read(i)
	return nil
}

// Close gives the instance back. Folders that are open are watched no more.
func (s *Shared) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.instance == nil {
		return
	}
	for f := range s.all() {
		f.drop()
	}
	s.instance.file.Close()
	s.instance = nil
}

// all are the folders that are watched; mu is held.
func (s *Shared) all() iter.Seq[*Folder] {
	return func(yield func(*Folder) bool) {
		for _, folders := range s.folders {
			for _, f := range slices.Clone(folders) {
				if !yield(f) {
					return
				}
			}
		}
	}
}

// read notifies folders of names that come, until the instance is closed.
func (s *Shared) read(i *instance) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := i.file.Read(buffer)
		if err != nil {
			return // closed
		}
		s.take(buffer[:n])
	}
}

func (s *Shared) take(events []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range parse(events) {
		folders := slices.Clone(s.folders[e.wd])
		if e.mask&unix.IN_Q_OVERFLOW != 0 { // the lost events may be about any of them
			folders = slices.Collect(s.all())
		}
		for _, f := range folders {
			f.event(e)
		}
	}
}

// event takes one of this folder's; shared.mu is held.
func (f *Folder) event(e event) {
	f.events++
	gone, often := e.mask&goneMask != 0, f.events >= maxEvents
	if gone || often {
		f.drop()
	}
	if gone || often || slices.Contains(f.names, e.name) {
		f.notify()
	}
}

// instance is an inotify instance, and its descriptor: File.Fd would have reads block.
type instance struct {
	file *os.File
	fd   int
}

func newInstance() (*instance, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w: raise fs.inotify.max_user_instances (sysctl), or the limit of open files", err)
	}
	return &instance{os.NewFile(uintptr(fd), "inotify"), fd}, nil
}

// watchFailed says why a folder can't be watched.
func watchFailed(folder string, err error) error {
	err = fmt.Errorf("inotify: %w", &os.PathError{Op: "watch", Path: filepath.Clean(folder), Err: err})
	if errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("%w: raise fs.inotify.max_user_watches (sysctl)", err)
	}
	return err
}
