package rundir_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/shim/internal/rundir"
	"github.com/vmlet/vmlet/test/faultfs"
)

const exitName = "exit.json"

func writeExit(dir, content string) error {
	d, err := rundir.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.WriteFile(exitName, []byte(content), 0o600), d.Close())
}

func readExit(dir string, isNew bool) error {
	d, err := rundir.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	b, err := d.ReadFile(exitName, 100)
	if err == nil && string(b) != "new" && (isNew || string(b) != "old") {
		err = fmt.Errorf("it has %q", b)
	}
	return err
}

func TestWriteFaults(t *testing.T) {
	faultfs.ForTest(t).Walk(t, faultfs.Walk{
		Prepare: func(dir string) error { return writeExit(dir, "old") },
		Do:      func(dir string) error { return writeExit(dir, "new") },
		Check: func(dir string, fault faultfs.Fault, err error) error {
			if bad := readExit(dir, err == nil); bad != nil {
				return bad
			}
			if err != nil {
				if bad := faultfs.Names(err, dir, 0); bad != nil {
					return bad
				}
				// The next write takes what may be left.
				if bad := errors.Join(writeExit(dir, "new"), readExit(dir, true)); bad != nil {
					return bad
				}
			}
			left, err := os.ReadDir(dir)
			if err == nil && len(left) != 1 {
				err = fmt.Errorf("left: %v", left)
			}
			return err
		},
	})
}

func TestReadFaults(t *testing.T) {
	faultfs.ForTest(t).Walk(t, faultfs.Walk{
		Prepare: func(dir string) error { return writeExit(dir, "old") },
		Do:      func(dir string) error { return readExit(dir, false) },
		Check: func(dir string, fault faultfs.Fault, err error) error {
			if err != nil {
				return faultfs.Names(err, filepath.Base(dir), fault.Errno)
			}
			return nil
		},
	})
}

func TestWritePowerCut(t *testing.T) {
	f := faultfs.ForTest(t)
	f.Cut(t, faultfs.Cuts{
		Prepare: func(dir string) error { return writeExit(dir, "old") },
		Do: func(dir string) error {
			err := writeExit(dir, "new")
			f.Mark("written")
			return err
		},
		Check: func(dir string, s faultfs.State) error { return readExit(dir, s.Marked("written")) },
	})
}
