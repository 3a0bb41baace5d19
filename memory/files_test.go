package memory

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// sparseFile has data with holes and blocks of zeros around, and a last short block.
func sparseFile(t *testing.T) (*os.File, []byte) {
	t.Helper()
	want := make([]byte, 4<<20+123)
	rnd := rand.NewChaCha8([32]byte{7})
	rnd.Read(want[1<<20 : 1<<20+5000])
	rnd.Read(want[3<<20 : 3<<20+fileBlock*2])
	want[len(want)-1] = 9
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	for _, run := range [][2]int{{1 << 20, 1<<20 + 5000}, {2 << 20, 2<<20 + fileBlock}, {3 << 20, 3<<20 + 2*fileBlock}, {len(want) - 1, len(want)}} {
		if _, err := f.WriteAt(want[run[0]:run[1]], int64(run[0])); err != nil {
			t.Fatal(err)
		}
	}
	return f, want
}

// imageWithFile is an image with the memory of someRAM and one file.
func imageWithFile(t *testing.T) (dir string, content []byte) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "image")
	w, err := Create(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	copied(t)(w)
	file, content := sparseFile(t)
	if err := w.CopyFile(t.Context(), file, "/made/root.qcow2", func(uint64) {}); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(t.Context(), manifestFor(5<<20+PageSize)); err != nil {
		t.Fatal(err)
	}
	return dir, content
}

func fresh(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "back"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestFilesOfAnImage(t *testing.T) {
	dir, want := imageWithFile(t)
	img := open(t, dir)
	files := img.Manifest().Files
	if len(files) != 1 || files[0].Name != "file-0" || files[0].Path != "/made/root.qcow2" || files[0].Size != uint64(len(want)) {
		t.Fatalf("files %+v", files)
	}
	if got, most := files[0].DataBytes, uint64(5*fileBlock); got == 0 || got > most {
		t.Errorf("%d bytes of data, want at most %d", got, most)
	}
	if err := img.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	back := fresh(t)
	if err := img.CopyOut(t.Context(), files[0], back); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content(t, back), want) {
		t.Error("the file is not as it was")
	}
	if got := allocated(t, back); got > 1<<20 {
		t.Errorf("it takes %d bytes, and is sparse", got)
	}
	head, err := img.Manifest().Head()
	if err != nil {
		t.Fatal(err)
	}
	if m, err := ReadManifest(bytes.NewReader(head), "head"); err != nil || !slices.Equal(m.Files, files) {
		t.Errorf("files of the head %+v, error %v", m, err)
	}
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	mustBeGone(t, dir)
}

func TestDamagedFiles(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"a bit":       func(path string) error { return writeAt(path, 1<<20+7, 1) },
		"in a hole":   func(path string) error { return writeAt(path, 2<<20, 1) },
		"a block":     func(path string) error { return writeAt(path, 3<<20, make([]byte, fileBlock)...) },
		"too short":   func(path string) error { return os.Truncate(path, 4<<20) },
		"not there":   os.Remove,
		"a link":      func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path)) },
		"another one": func(path string) error { return os.Truncate(path, 5<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := imageWithFile(t)
			if err := damage(filepath.Join(dir, "file-0")); err != nil {
				t.Fatal(err)
			}
			img, err := Open(dir)
			if err == nil {
				defer img.Close()
				f := img.Manifest().Files[0]
				if err := img.Verify(t.Context(), nil); err == nil {
					t.Error("it is taken for whole")
				}
				err = img.CopyOut(t.Context(), f, fresh(t))
			}
			var damaged *DamagedError
			if !errors.As(err, &damaged) || !strings.HasSuffix(damaged.Path, "file-0") {
				t.Errorf("error %v, want damage of file-0", err)
			}
		})
	}
}

func writeAt(path string, off int64, b ...byte) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, off)
	return errors.Join(err, f.Close())
}

// TestFilesAreUndone: neither an abort nor a kill leaves a file.
func TestFilesAreUndone(t *testing.T) {
	file, _ := sparseFile(t)
	save := func(w *Writer) {
		copied(t)(w)
		if err := w.CopyFile(t.Context(), file, "/made/a", func(uint64) {}); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "image")
	w, err := Create(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	save(w)
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	mustBeGone(t, dir)
	if err := unfinished(t, dir, save).Remove(); err != nil {
		t.Error(err)
	}
	mustBeGone(t, dir)
}

func TestUsedOnce(t *testing.T) {
	dir, _ := imageWithFile(t)
	const pods = 8
	marked := make([]error, pods)
	var all sync.WaitGroup
	images := make([]*Image, pods)
	for i := range images { // all find it unused
		images[i] = open(t, dir)
		if err := images[i].CheckUnused(); err != nil {
			t.Fatal(err)
		}
	}
	for i, img := range images {
		all.Go(func() { marked[i] = img.MarkUsed("pod web") })
	}
	all.Wait()
	won := 0
	for _, err := range marked {
		var used *UsedError
		switch {
		case err == nil:
			won++
		case !errors.As(err, &used):
			t.Errorf("error %v, want that it was used", err)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d pods may go on from it, want one", won, pods)
	}
	var used *UsedError
	if err := open(t, dir).CheckUnused(); !errors.As(err, &used) || used.Use.By != "pod web" || used.Use.Time.IsZero() {
		t.Errorf("error %v, want that pod web has used it", err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 5 {
		t.Errorf("the folder has %v, %v", names, err)
	}
	for name, content := range map[string]string{"cut off": `{"ti`, "empty": "", "huge": strings.Repeat("x", 1<<20)} {
		if err := os.WriteFile(filepath.Join(dir, UsedName), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var used *UsedError
		if err := open(t, dir).CheckUnused(); !errors.As(err, &used) || len(err.Error()) > 1000 {
			t.Errorf("mark %s: %.300v", name, err)
		}
	}
}

// TestMarkOfAnImageThatIsRemoved: on a filesystem without locks one may have it open still
// when another has used and removed it.
func TestMarkOfAnImageThatIsRemoved(t *testing.T) {
	dir, _ := imageWithFile(t)
	img := open(t, dir)
	if err := os.Remove(filepath.Join(dir, ManifestName)); err != nil {
		t.Fatal(err)
	}
	var used *UsedError
	if err := img.MarkUsed("late"); !errors.As(err, &used) {
		t.Errorf("error %v, want that it was used", err)
	}
}

func TestClear(t *testing.T) {
	volume := t.TempDir()
	place := func(name string, used bool) {
		dir, _ := imageWithFile(t)
		if used {
			if err := open(t, dir).MarkUsed("pod"); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Rename(dir, filepath.Join(volume, name)); err != nil {
			t.Fatal(err)
		}
	}
	place("restore-whole", false)
	place("restore-used", true)
	place("other-used", true)
	place("restore-running", true)
	lock, err := LockShared(filepath.Join(volume, "restore-running"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	unfinished(t, filepath.Join(volume, "restore-half"), copied(t))
	w, err := Create(filepath.Join(volume, "restore-saving"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	copied(t)(w)
	for _, dir := range []string{"restore-empty", "restore-strange/x", "lost+found"} {
		if err := os.MkdirAll(filepath.Join(volume, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(volume, "other-used"), filepath.Join(volume, "restore-link")); err != nil {
		t.Fatal(err)
	}
	parent, err := os.Open(volume)
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	removed, err := Clear(parent, func(name string) bool { return strings.HasPrefix(name, "restore-") })
	if err != nil {
		t.Error(err)
	}
	if want := []string{"restore-half", "restore-used"}; !slices.Equal(removed, want) {
		t.Errorf("removed %v, want %v", removed, want)
	}
	var left []string
	entries, err := os.ReadDir(volume)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"lost+found", "other-used", "restore-empty", "restore-link", "restore-running", "restore-saving", "restore-strange", "restore-whole"}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
}
