package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/test/faultfs"
)

func file(dir string) string { return filepath.Join(dir, "file") }

func prepare(dir string) error { return os.WriteFile(file(dir), []byte("old"), 0o600) }

// oldOrNew sees that the file has one of its two contents; without an error the new.
func oldOrNew(dir string, isNew bool) error {
	b, err := os.ReadFile(file(dir))
	if err == nil && string(b) != "new" && (isNew || string(b) != "old") {
		err = fmt.Errorf("the file has %q", b)
	}
	return err
}

func TestFaults(t *testing.T) {
	for name, write := range writers() {
		t.Run(name, func(t *testing.T) {
			faultfs.ForTest(t).Walk(t, faultfs.Walk{
				Prepare: prepare,
				Do:      func(dir string) error { return write(file(dir), []byte("new"), 0o600) },
				Check: func(dir string, fault faultfs.Fault, err error) error {
					if bad := oldOrNew(dir, err == nil); bad != nil {
						return bad
					}
					if err == nil {
						return nil
					}
					if bad := faultfs.Names(err, dir, 0); bad != nil {
						return bad
					}
					// What can't be removed, or was not known to be there, is swept later by its name.
					unknown := fault.Late || strings.Contains(err.Error(), "open ")
					return onlyTemporary(dir, unknown || fault.Times == faultfs.Forever)
				},
			})
		})
	}
}

func onlyTemporary(dir string, allowed bool) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != "file" && !(allowed && strings.HasSuffix(e.Name(), TempSuffix)) {
			return fmt.Errorf("left: %s", e.Name())
		}
	}
	return err
}

func TestPowerCut(t *testing.T) {
	f := faultfs.ForTest(t)
	f.Cut(t, faultfs.Cuts{
		Prepare: prepare,
		Do: func(dir string) error {
			err := ReplaceDurably(file(dir), []byte("new"), 0o600)
			f.Mark("replaced")
			return err
		},
		Check: func(dir string, s faultfs.State) error { return oldOrNew(dir, s.Marked("replaced")) },
	})
}

// TestFolderPowerCut: folders that were made are there, all the way down, also if the
// first attempt has failed.
func TestFolderPowerCut(t *testing.T) {
	for _, fault := range []faultfs.Fault{{}, {Op: faultfs.OpFsyncdir, Nth: 2, Errno: syscall.EIO}} {
		t.Run(fault.String(), func(t *testing.T) {
			f := faultfs.ForTest(t)
			f.Cut(t, faultfs.Cuts{
				Do: func(dir string) error {
					path := filepath.Join(dir, "a/b/c")
					if fault.Op != "" {
						f.Arm(fault)
						if err := MakeFolder(path, 0o700); !errors.Is(err, fault.Errno) {
							return fmt.Errorf("%v: %w", fault, err)
						}
						f.Disarm()
					}
					err := MakeFolder(path, 0o700)
					f.Mark("made")
					return err
				},
				Check: func(dir string, s faultfs.State) error {
					if !s.Marked("made") {
						return nil
					}
					_, err := os.Stat(filepath.Join(dir, "a/b/c"))
					return err
				},
			})
		})
	}
}

func TestFolderOverFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, filepath.Join(path, "below")} {
		if err := MakeFolder(p, 0o700); !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("%s: %v", p, err)
		}
	}
}
