package logfile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/shim/internal/logfile"
	"github.com/vmlet/vmlet/shim/internal/rundir"
	"github.com/vmlet/vmlet/test/faultfs"
)

// A line more than fits into a file, and what says how many were lost.
const (
	faultyLine = "0123456789"
	faultySize = 25
	notice     = len("\n[12345 bytes were lost: they could not be written]\n")
)

// TestLogFaults: whatever fails, the log takes everything, keeps its bound, and has
// what came last when the disk is well again.
func TestLogFaults(t *testing.T) {
	fs := faultfs.ForTest(t)
	fs.Walk(t, faultfs.Walk{
		Do: func(path string) error {
			dir, err := rundir.Open(path)
			if err != nil {
				return err
			}
			defer dir.Close()
			f, err := logfile.Open(dir, "log", logfile.Limits{Size: faultySize, Files: 2})
			if err != nil {
				return err
			}
			defer f.Close()
			for range 8 {
				if n, err := f.Write([]byte(faultyLine)); n != len(faultyLine) || err != nil {
					return fmt.Errorf("%d bytes taken, %w", n, err)
				}
			}
			fs.Disarm()
			_, err = f.Write([]byte("last"))
			return err
		},
		Check: func(path string, _ faultfs.Fault, err error) error {
			if err != nil { // of opening
				return faultfs.Names(err, filepath.Base(path), 0)
			}
			return errors.Join(bounded(path), endsWith(path, "last"))
		},
	})
}

func bounded(path string) error {
	entries, err := os.ReadDir(path)
	if len(entries) > 2 {
		err = errors.Join(err, fmt.Errorf("%d files", len(entries)))
	}
	for _, e := range entries {
		if info, bad := e.Info(); bad != nil || info.Size() > faultySize+int64(notice+len(faultyLine)) {
			err = errors.Join(err, bad, fmt.Errorf("%s has %d bytes", e.Name(), info.Size()))
		}
	}
	return err
}

// endsWith reads the log's files, the older first.
func endsWith(path, text string) error {
	var all string
	for _, name := range []string{"log.1", "log"} {
		b, err := os.ReadFile(filepath.Join(path, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		all += string(b)
	}
	if !strings.HasSuffix(all, text) {
		return fmt.Errorf("the log ends with %.60q", all[max(0, len(all)-60):])
	}
	return nil
}

// TestNeitherRenamedNorTruncated: a log that can make no room keeps its bound, and
// says what was lost.
func TestNeitherRenamedNorTruncated(t *testing.T) {
	fs := faultfs.ForTest(t)
	path := fs.Path()
	dir, err := rundir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	f, err := logfile.Open(dir, "log", logfile.Limits{Size: faultySize, Files: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fs.Arm(faultfs.Fault{Op: faultfs.OpRename, Errno: syscall.EIO, Times: faultfs.Forever},
		faultfs.Fault{Op: faultfs.OpTruncate, Errno: syscall.EIO, Times: faultfs.Forever})
	for range 100 {
		f.Write([]byte(faultyLine))
	}
	if err := bounded(path); err != nil {
		t.Error(err)
	}
	fs.Disarm()
	f.Write([]byte("last"))
	if err := errors.Join(bounded(path), endsWith(path, "last")); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(filepath.Join(path, "log")); !strings.Contains(string(b), "975 bytes were lost") {
		t.Errorf("the log has %q", b)
	}
}
