package memory

import (
	"errors"
	"fmt"

	"github.com/vmlet/vmlet/contract"
)

var (
	// ErrInUse is wrapped by errors about a folder that another process is
	// writing, or running from.
	ErrInUse = errors.New("in use by another process")
	// ErrNotEmpty is wrapped by Create's error about a folder with content.
	ErrNotEmpty = errors.New("not empty")
	// ErrNotImage is wrapped by Open's error about a folder that has no
	// manifest.json.
	ErrNotImage = errors.New("not a memory image")
	// ErrUnfinished is wrapped, besides ErrNotImage, where the folder has the
	// remains of a save that never came to its end.
	ErrUnfinished = errors.New("save unfinished")
	// ErrNewerFormat is wrapped by a FormatError about an image that a newer
	// release wrote.
	ErrNewerFormat = errors.New("newer image format")
	// ErrStreamLayout is wrapped by Fill's error about an image whose RAM is
	// inside its state file.
	ErrStreamLayout = errors.New("layout stream: RAM is inside the state file")
)

// FormatError says which field of a manifest makes no sense, and why.
type FormatError struct {
	Path  string // of manifest.json
	Field string // as JSON names it, for example regions[1].size; empty if it is the whole
	What  string
	Err   error // the cause, may be nil
}

func (e *FormatError) Error() string {
	s := e.Path + ": "
	if e.Field != "" {
		s += e.Field + ": "
	}
	return s + e.What
}

func (e *FormatError) Unwrap() error { return e.Err }

// Faults are the error in parts (contract.FaultsOf).
func (e *FormatError) Faults() []contract.Fault { return about(e.Path, e) }

// DamagedError says which file of an image is not as its manifest says.
type DamagedError struct {
	Path   string
	Offset int64 // bytes from the start of the file; -1: the file as a whole
	Chunk  int64 // number of the chunk; -1: none
	What   string
	Err    error // the cause, may be nil
}

func (e *DamagedError) Error() string {
	switch {
	case e.Chunk >= 0:
		return fmt.Sprintf("%s: damaged at offset %d (chunk %d): %s", e.Path, e.Offset, e.Chunk, e.What)
	case e.Offset >= 0:
		return fmt.Sprintf("%s: damaged at offset %d: %s", e.Path, e.Offset, e.What)
	}
	return fmt.Sprintf("%s: damaged: %s", e.Path, e.What)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// Faults are the error in parts (contract.FaultsOf).
func (e *DamagedError) Faults() []contract.Fault { return about(e.Path, e) }

func damagedFile(path, format string, args ...any) error {
	return &DamagedError{Path: path, Offset: -1, Chunk: -1, What: fmt.Sprintf(format, args...)}
}

// SpaceError says that a filesystem is too small for an image.
type SpaceError struct {
	Dir       string // the existing folder that was asked
	Need      uint64 // bytes
	Available uint64 // bytes, to an unprivileged user
}

func (e *SpaceError) Error() string {
	return fmt.Sprintf("%s: not enough space: %s needed, %s available: free some, or name another folder",
		e.Dir, size(e.Need), size(e.Available))
}

// Faults are the error in parts (contract.FaultsOf).
func (e *SpaceError) Faults() []contract.Fault { return about(e.Dir, e) }

func about(path string, err error) []contract.Fault {
	return []contract.Fault{{Object: path, Text: err.Error()}}
}

// size is bytes, and MiB or else KiB, so that none but an empty disk has 0 of them.
func size(bytes uint64) string {
	if bytes >= 1<<20 {
		return fmt.Sprintf("%d bytes (%d MiB)", bytes, bytes>>20)
	}
	return fmt.Sprintf("%d bytes (%d KiB)", bytes, bytes>>10)
}
