package csi

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestCopies: a copy has what it was made from, is as large as it was asked to be, and is
// another file.
func TestCopies(t *testing.T) {
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	original, copied := identify(volumes, "original"), identify(snapshots, "copy")
	if err := s.add(ctx, original, item{Name: "original", Size: mebibyte}); err != nil {
		t.Fatal(err)
	}
	write(t, s.content(original), "before")
	if err := s.add(ctx, copied, item{Name: "copy", Size: 2 * mebibyte, From: original}); err != nil {
		t.Fatal(err)
	}
	write(t, s.content(original), "after ")
	got, err := os.ReadFile(s.content(copied))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(got, []byte("before")) {
		t.Errorf("the copy begins with %q", got[:6])
	}
	about, err := s.get(copied)
	if err != nil {
		t.Fatal(err)
	}
	if about.Size != 2*mebibyte || about.From != original {
		t.Errorf("the copy is of %q and has %d bytes, want %q and %d", about.From, about.Size, original, 2*mebibyte)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// TestUnfinished: what a killed driver was making is gone with the next one.
func TestUnfinished(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "new-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := openStore(root); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(root, "*")); len(left) > 0 {
		t.Errorf("there is still %v", left)
	}
}

// TestForeignIDs: an ID is no path out of the store.
func TestForeignIDs(t *testing.T) {
	dir := t.TempDir()
	s, err := openStore(filepath.Join(dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "..", "../root", "v-", "v-0/../../x"} {
		if i, err := s.get(id); i != nil || err != nil {
			t.Errorf("%q is %v, %v", id, i, err)
		}
		if err := s.remove(id); err != nil {
			t.Errorf("removing %q: %v", id, err)
		}
	}
	if _, err := os.Stat(s.root); err != nil {
		t.Error(err)
	}
}
