package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// tempSuffix marks a file that is being written. Those that a crash leaves are
// removed when their folder is read.
const tempSuffix = ".tmp"

// WriteFile replaces a file as a whole: write, fsync, rename, fsync of the
// folder. A reader sees the old content or the new, also after a power cut.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
	temp := path + tempSuffix
	err := writeSynced(temp, content, mode)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), removeIfThere(temp))
	}
	return syncDir(filepath.Dir(path))
}

func writeSynced(path string, content []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func isTemp(name string) bool { return strings.HasSuffix(name, tempSuffix) }
