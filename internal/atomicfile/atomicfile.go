// Package atomicfile replaces files as a whole: a reader sees the old content or
// the new, never a part.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// TempSuffix ends the names of files that are being written. They begin with a
// dot, and are beside the file that they are to become. Only a process that was
// killed leaves one.
const TempSuffix = ".tmp"

// IsTemp says whether a file in a folder is one that this package was writing. What
// others write there so may be under way: it has no number in its name.
func IsTemp(name string) bool {
	stem, found := strings.CutSuffix(name, TempSuffix)
	_, err := strconv.ParseUint(stem[strings.LastIndexByte(stem, '.')+1:], 10, 64) // by os.CreateTemp
	return found && err == nil && strings.HasPrefix(name, ".")
}

// Replace puts a file of this content and just this mode in path's place. It
// doesn't wait for the disk: after a power cut the file may be damaged.
func Replace(path string, content []byte, mode fs.FileMode) error {
	return replace(path, content, mode, false)
}

// ReplaceDurably is Replace, and when it returns the new file is on the disk, its
// name too. After a power cut there is the old content or the new.
func ReplaceDurably(path string, content []byte, mode fs.FileMode) error {
	if err := replace(path, content, mode, true); err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder waits until the names in a folder are on the disk.
func SyncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// MakeFolder makes a folder, and those above it that are missing, and waits until
// their names are on the disk. That it is there is no error.
func MakeFolder(path string, mode fs.FileMode) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	case err == nil, !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(path)
	if err := MakeFolder(parent, mode); err != nil {
		return err
	}
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := SyncFolder(parent); err != nil {
		// The next attempt is to sync it: it does so only for what it makes.
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func replace(path string, content []byte, mode fs.FileMode, sync bool) error {
	// A name that nobody has: two may write the same file at once.
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*"+TempSuffix)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	err = errors.Join(fill(f, content, mode, sync), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = fmt.Errorf("writing %s: %w", path, err)
		// A rename may have been carried out and its answer lost.
		if bad := os.Remove(f.Name()); !errors.Is(bad, fs.ErrNotExist) {
			err = errors.Join(err, bad)
		}
	}
	return err
}

func fill(f *os.File, content []byte, mode fs.FileMode, sync bool) error {
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.Chmod(mode); err != nil || !sync {
		return err
	}
	return f.Sync()
}
