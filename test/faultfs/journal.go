package faultfs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// kind is what an entry of a journal tells of.
type kind int

const (
	kindNone kind = iota
	// Of names, which fsync(2) of their folder makes durable.
	kindPut
	kindDrop
	kindMove
	// Of a file's content and mode, which fsync(2) of the file makes durable.
	kindWrite
	kindTruncate
	kindExtend // to off bytes at least
	kindMode
	// What makes durable, and what a test has said.
	kindSync
	kindSyncDir
	kindMark
)

// entry is one operation that has succeeded. Files and folders have the kernel's
// inode numbers when they come in, which may come again, and numbers of the
// recording's own afterwards.
type entry struct {
	kind        kind
	id          uint64
	dir, toDir  uint64
	name        string
	toName      string
	off         int64
	data        []byte
	mode        uint32
	displayName string
}

func (e entry) String() string {
	switch e.kind {
	case kindPut:
		return "create " + e.name
	case kindDrop:
		return "remove " + e.name
	case kindMove:
		return fmt.Sprintf("rename %s to %s", e.name, e.toName)
	case kindWrite:
		return fmt.Sprintf("write %s %d+%d", e.displayName, e.off, len(e.data))
	case kindTruncate:
		return fmt.Sprintf("truncate %s to %d", e.displayName, e.off)
	case kindExtend:
		return fmt.Sprintf("extend %s to %d", e.displayName, e.off)
	case kindMode:
		return fmt.Sprintf("mode %o of %s", e.mode, e.displayName)
	case kindSync:
		return "fsync " + e.displayName
	case kindSyncDir:
		return "fsync folder " + e.displayName
	}
	return "mark " + e.name
}

// journal records changes while a test wants it to.
type journal struct {
	mu  sync.Mutex
	rec *Recording // nil: off
	ids map[uint64]uint64
}

// Recording is what happened to a filesystem between Record and Recorded.
type Recording struct {
	base    map[uint64]baseNode
	log     []entry
	lastID  uint64
	display map[uint64]string
}

// baseNode is a file or a folder that was there, durably, before.
type baseNode struct {
	mode    uint32
	names   map[string]uint64 // of a folder
	content []byte            // of a file
}

// rootID is the number of the filesystem's root in a recording.
const rootID = 1

// Record begins to record. All that is there now counts as durable.
func (f *FS) Record() error {
	j := &f.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rec = &Recording{base: make(map[uint64]baseNode), display: make(map[uint64]string)}
	j.ids = make(map[uint64]uint64)
	_, err := j.snapshot(f.backing, "/")
	return err
}

// Recorded ends a recording.
func (f *FS) Recorded() *Recording {
	f.journal.mu.Lock()
	defer f.journal.mu.Unlock()
	rec := f.journal.rec
	f.journal.rec = nil
	return rec
}

// Mark puts a word into the recording, for States.
func (f *FS) Mark(word string) { f.journal.add(entry{kind: kindMark, name: word}) }

// snapshot takes down what is at a path; j.mu is held.
func (j *journal) snapshot(path, name string) (uint64, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	sys := st.Sys().(*syscall.Stat_t)
	id := j.newID(sys.Ino, name)
	n := baseNode{mode: sys.Mode}
	switch {
	case st.IsDir():
		n.names = make(map[string]uint64)
		entries, err := os.ReadDir(path)
		if err != nil {
			return 0, err
		}
		for _, e := range entries {
			if n.names[e.Name()], err = j.snapshot(filepath.Join(path, e.Name()), e.Name()); err != nil {
				return 0, err
			}
		}
	case st.Mode().IsRegular():
		if n.content, err = os.ReadFile(path); err != nil {
			return 0, err
		}
	default:
		return 0, fmt.Errorf("%s: %v can't be recorded", path, st.Mode())
	}
	j.rec.base[id] = n
	return id, nil
}

func (j *journal) newID(ino uint64, name string) uint64 {
	j.rec.lastID++
	j.ids[ino] = j.rec.lastID
	j.rec.display[j.rec.lastID] = name
	return j.rec.lastID
}

func (j *journal) on() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.rec != nil
}

func (j *journal) add(e entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.append(e)
}

// during does something and records it, with nothing else in between.
func (j *journal) during(do func() (entry, syscall.Errno)) syscall.Errno {
	if !j.on() {
		_, errno := do()
		return errno
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	e, errno := do()
	if errno == 0 {
		j.append(e)
	}
	return errno
}

// append gives an entry the recording's own numbers; j.mu is held.
func (j *journal) append(e entry) {
	if j.rec == nil || e.kind == kindNone {
		return
	}
	if e.kind == kindPut {
		e.id = j.newID(e.id, e.name)
	} else {
		e.id = j.ids[e.id]
	}
	e.dir, e.toDir = j.ids[e.dir], j.ids[e.toDir]
	e.displayName = j.rec.display[e.id]
	j.rec.log = append(j.rec.log, e)
}

// change is try for what is recorded.
func (f *FS) change(ctx context.Context, op Op, name string, do func() (entry, syscall.Errno)) syscall.Errno {
	return f.try(ctx, op, name, func(Fault) syscall.Errno { return f.journal.during(do) })
}
