package disk

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func create(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestCreateOverlay(t *testing.T) {
	for name, size := range map[string]int64{
		"empty": 0, "odd": 1000, "one table": mappedByL1Entry, "two tables": mappedByL1Entry + 1,
		"large": 64 << 40, "largest": MaxVirtualSize,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "overlay")
			f := create(t, path)
			base := Image{Path: create(t, filepath.Join(dir, "base")).Name(), Format: Raw}
			if err := CreateOverlay(f, base, size); err != nil {
				t.Fatal(err)
			}
			info, err := Probe(f)
			if err != nil {
				t.Fatal(err)
			}
			if want := (size + 511) / 512 * 512; info.VirtualSize != want {
				t.Errorf("virtual size %d, want %d", info.VirtualSize, want)
			}
			if err := Check(info, Expectation{Field: "x", Image: Image{path, QCOW2}, Backing: []Image{base}}); err != nil {
				t.Error(err)
			}
			if info.Header.BackingFormat != string(Raw) || info.Header.Version != 3 {
				t.Errorf("header %+v", info.Header)
			}
			qemuImg(t, "/", "check", "-q", "-f", "qcow2", path)
		})
	}
}

// TestOverlayShowsItsBase: what QEMU reads through it is what lies beneath, and what it
// writes stays in it.
func TestOverlayShowsItsBase(t *testing.T) {
	for _, format := range []Format{Raw, QCOW2} {
		t.Run(string(format), func(t *testing.T) {
			dir := t.TempDir()
			content := bytes.Repeat([]byte("what lies beneath"), 100_000)
			if err := os.WriteFile(filepath.Join(dir, "content"), content, 0o600); err != nil {
				t.Fatal(err)
			}
			qemuImg(t, dir, "convert", "-f", "raw", "-O", string(format), "content", "base")
			base := Image{Path: filepath.Join(dir, "base"), Format: format}
			if err := CreateOverlay(create(t, filepath.Join(dir, "overlay")), base, 4<<20); err != nil {
				t.Fatal(err)
			}
			qemuImg(t, dir, "convert", "-f", "qcow2", "-O", "raw", "overlay", "seen")
			seen, err := os.ReadFile(filepath.Join(dir, "seen"))
			if err != nil {
				t.Fatal(err)
			}
			if len(seen) != 4<<20 || !bytes.HasPrefix(seen, content) {
				t.Errorf("%d bytes are seen through it, and not what lies beneath", len(seen))
			}
			qemuImg(t, dir, "bench", "-w", "-f", "qcow2", "-c", "64", "-s", "65536", "overlay")
			qemuImg(t, dir, "check", "-q", "-f", "qcow2", "overlay")
		})
	}
}

func TestCreateOverlayRefused(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "overlay"))
	for _, test := range []struct {
		base Image
		size int64
		want string
	}{
		{Image{"/b", Raw}, MaxVirtualSize + 1, "at most"},
		{Image{"/b", Raw}, -1, "-1 bytes"},
		{Image{"", Raw}, 1, "path has 0 bytes"},
		{Image{strings.Repeat("b", 1024), Raw}, 1, "path has 1024 bytes"},
		{Image{"/b", VMDK}, 1, "vmdk"},
	} {
		if err := CreateOverlay(f, test.base, test.size); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, %d bytes: error %v, want %q", test.base, test.size, err, test.want)
		}
	}
	if st, err := f.Stat(); err != nil || st.Size() != 0 {
		t.Errorf("something was written: %v, %v", st, err)
	}
}

// TestRoom: what a file has taken already counts, so that one that fills its filesystem may
// stay as it is.
func TestRoom(t *testing.T) {
	const size = 4 << 20
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skip("needs to mount a tmpfs: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	f := create(t, filepath.Join(dir, "f"))
	for _, filled := range []int64{0, 1 << 20, size} {
		if _, err := f.WriteAt(make([]byte, filled), 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(2 * size); err != nil { // a hole takes nothing
			t.Fatal(err)
		}
		if room, err := Room(f); err != nil || room != size {
			t.Errorf("with %d bytes written: room for %d, want %d; %v", filled, room, size, err)
		}
	}
}
