package memory

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// unfinished is a save whose process was killed: what it had noted, and its files.
func unfinished(t *testing.T, dir string, until func(w *Writer)) *Remains {
	t.Helper()
	var noted []byte
	w, err := Create(dir, Options{Note: func(r Remains) (err error) { noted, err = json.Marshal(r); return err }})
	if err != nil {
		t.Fatal(err)
	}
	until(w)
	w.close()
	var r Remains
	if err := json.Unmarshal(noted, &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

func copied(t *testing.T) func(w *Writer) {
	return func(w *Writer) {
		writeState(t, w)
		if _, err := w.CopyMemory(t.Context(), someRAM(t), 5<<20+PageSize, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRemains: what a killed save leaves is removed, whatever it was at, and nothing else.
func TestRemains(t *testing.T) {
	for name, until := range map[string]func(w *Writer){
		"folder": func(*Writer) {},
		"copied": copied(t),
		"unnoted": func(w *Writer) {
			w.opts.Note = func(Remains) error { return nil }
			writeState(t, w)
			w.state.Truncate(0)
		},
		"manifest": func(w *Writer) {
			copied(t)(w)
			w.opts.Note = func(r Remains) error { // as if killed at the manifest
				if r.Files[manifestTemp] == (FileID{}) {
					return nil
				}
				return errors.New("killed")
			}
			_ = w.Commit(t.Context(), manifestFor(5<<20+PageSize))
		},
	} {
		for _, made := range []bool{true, false} {
			dir := filepath.Join(t.TempDir(), "image")
			if !made {
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the second has nothing to do
				if err := unfinished(t, dir, until).Remove(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if names, err := os.ReadDir(dir); made != os.IsNotExist(err) || len(names) > 0 {
				t.Errorf("%s, the folder made %t: left %v, %v", name, made, names, err)
			}
		}
	}
}

// TestRemainsOfOthers: files that the save has not made stay.
func TestRemainsOfOthers(t *testing.T) {
	in := func(dir string, names ...string) []string {
		for i, n := range names {
			names[i] = filepath.Join(dir, n)
		}
		return names
	}
	for name, change := range map[string]func(t *testing.T, dir string) (stay []string, mayFail bool){
		"a whole image": func(t *testing.T, dir string) ([]string, bool) {
			return in(dir, ManifestName, MemoryName, StateName), os.WriteFile(filepath.Join(dir, ManifestName), nil, 0o600) != nil
		},
		"another folder": func(t *testing.T, dir string) ([]string, bool) {
			if err := os.Rename(dir, dir+"-moved"); err != nil {
				t.Fatal(err)
			}
			unfinished(t, dir, copied(t))
			return append(in(dir, MemoryName, StateName), in(dir+"-moved", MemoryName, StateName)...), false
		},
		"a link in the folder's place": func(t *testing.T, dir string) ([]string, bool) {
			if err := errors.Join(os.Rename(dir, dir+"-moved"), os.Symlink(dir+"-moved", dir)); err != nil {
				t.Fatal(err)
			}
			return in(dir+"-moved", MemoryName, StateName), true
		},
		"another file": func(t *testing.T, dir string) ([]string, bool) {
			path := filepath.Join(dir, StateName)
			if err := errors.Join(os.Rename(path, path+"-elsewhere"), os.WriteFile(path, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			return in(dir, StateName, StateName+"-elsewhere"), true
		},
		"a link in a file's place": func(t *testing.T, dir string) ([]string, bool) {
			path := filepath.Join(dir, MemoryName)
			if err := errors.Join(os.Rename(path, path+"-elsewhere"), os.Symlink(path+"-elsewhere", path)); err != nil {
				t.Fatal(err)
			}
			return in(dir, MemoryName, MemoryName+"-elsewhere"), true
		},
		"a save under way": func(t *testing.T, dir string) ([]string, bool) {
			d, err := openFolder(dir)
			if err == nil {
				err = lock(d.dir, 2) // LOCK_EX
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.dir.Close() })
			return in(dir, MemoryName, StateName), true
		},
		"a stranger's, beside": func(t *testing.T, dir string) ([]string, bool) {
			if err := os.WriteFile(filepath.Join(dir, "thesis.odt"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return in(dir, "thesis.odt"), false
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "image")
			r := unfinished(t, dir, copied(t))
			stay, mayFail := change(t, dir)
			if err := r.Remove(); err != nil && !mayFail {
				t.Error(err)
			}
			if gone := slices.DeleteFunc(stay, func(path string) bool { _, err := os.Lstat(path); return err == nil }); len(gone) > 0 {
				t.Errorf("removed: %v", gone)
			}
		})
	}
}

// TestRemainsTakenForOthers: a file that the save was about to make, and did not, may be
// there all the same, and a later one may have the inode of one that it made.
func TestRemainsTakenForOthers(t *testing.T) {
	for name, change := range map[string]func(r *Remains, path string) error{
		"never made": func(r *Remains, path string) error {
			r.Files[StateName] = FileID{}
			return os.WriteFile(path, []byte("somebody's"), 0o600)
		},
		"made later": func(r *Remains, _ string) error {
			id := r.Files[StateName]
			id.Born--
			r.Files[StateName] = id
			return nil
		},
	} {
		dir := filepath.Join(t.TempDir(), "image")
		r, path := unfinished(t, dir, func(w *Writer) { writeState(t, w) }), filepath.Join(dir, StateName)
		var st unix.Statx_t
		if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BTIME, &st); err != nil || st.Mask&unix.STATX_BTIME == 0 {
			t.Skipf("this filesystem does not know when a file was made: %v", err)
		}
		if r.Files[StateName].Born == 0 {
			t.Error("when the file was made is not noted")
		}
		if err := change(r, path); err != nil {
			t.Fatal(err)
		}
		if err := r.Remove(); err == nil {
			t.Errorf("%s: it is not said to be left", name)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
