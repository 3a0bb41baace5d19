package importer

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/internal/filesocket"
	"github.com/vmlet/vmlet/launch"
)

const mi = 1 << 20

// claim is a folder of a claim of 32 MiB.
func claim(t *testing.T) *Importer {
	t.Helper()
	return &Importer{
		Import:  launch.Import{ID: "uid", Folder: t.TempDir(), Size: 32 * mi},
		QEMUImg: "qemu-img", Progress: new(Progress), Pace: time.Millisecond,
	}
}

// someDisk has 10 MiB, with data between holes.
func someDisk() []byte {
	content := make([]byte, 10*mi)
	source := rand.NewChaCha8([32]byte{})
	for _, at := range []int{0, 3*mi + 100, 7 * mi} {
		_, _ = source.Read(content[at : at+mi])
	}
	return content
}

// wantDisk checks that a claim has a disk, and nothing else.
func wantDisk(t *testing.T, i *Importer, begin []byte, size int64) {
	t.Helper()
	entries, err := os.ReadDir(i.Folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "disk.img" {
		t.Fatalf("the claim has %q, want disk.img alone", got)
	}
	content, err := os.ReadFile(filepath.Join(i.Folder, "disk.img"))
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(content)) != size {
		t.Errorf("the disk has %d bytes, want %d", len(content), size)
	}
	if !bytes.HasPrefix(content, begin) {
		t.Error("the disk begins with other content")
	}
	if rest := content[min(len(begin), len(content)):]; !zero(rest) {
		t.Error("behind its content the disk has other data")
	}
	st, err := os.Stat(filepath.Join(i.Folder, "disk.img"))
	if err != nil {
		t.Fatal(err)
	}
	if st.Mode() != 0o660 {
		t.Errorf("the disk has mode %v, want 0660", st.Mode())
	}
}

// wantFault checks an error, and that the claim has no disk.
func wantFault(t *testing.T, i *Importer, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q in it", err, want)
	}
	if _, err := os.Lstat(filepath.Join(i.Folder, "disk.img")); err == nil {
		t.Error("there is a disk, though the import failed")
	}
}

// whole is the size of a disk on a claim of 32 MiB: less 5.5 %, in whole MiB.
const whole = 30 * mi

func TestBlank(t *testing.T) {
	i := claim(t)
	for range 2 { // a second run finds the disk of the first
		if err := i.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantDisk(t, i, nil, whole)
	}
	if got := allocated(t, i); got > mi {
		t.Errorf("an empty disk takes %d bytes", got)
	}
	i.Preallocate = true
	if err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := allocated(t, i); got < whole {
		t.Errorf("a preallocated disk takes %d bytes, want %d", got, whole)
	}
	small := claim(t)
	small.Size = 1000
	wantFault(t, small, small.Run(t.Context()), "no room for a disk")
}

// allocated is how much the disk takes, in bytes.
func allocated(t *testing.T, i *Importer) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(i.Folder, "disk.img"), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// TestCopy: another claim's disk, without its holes; one that is too large, or missing.
func TestCopy(t *testing.T) {
	from := t.TempDir()
	i := claim(t)
	i.Copy = &launch.ImportCopy{Path: from, Claim: "golden"}
	wantFault(t, i, i.Run(t.Context()), "claim golden: there is no disk.img")
	content := someDisk()
	sparseFile(t, filepath.Join(from, "disk.img"), content)
	if err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantDisk(t, i, content, whole)
	if got := allocated(t, i); got > 4*mi {
		t.Errorf("the copy takes %d bytes, of which 3 MiB have data", got)
	}
	if err := os.Truncate(filepath.Join(from, "disk.img"), 33*mi); err != nil {
		t.Fatal(err)
	}
	large := claim(t)
	large.Copy = i.Copy
	wantFault(t, large, large.Run(t.Context()), "the claim has room for 33554432")
}

// TestFull: a claim without room for an image beside its disk says what to do, and a later run with
// another source finds room.
func TestFull(t *testing.T) {
	i := claim(t)
	if err := unix.Mount("tmpfs", i.Folder, "tmpfs", 0, "size=12m"); err != nil {
		t.Skipf("mounting a filesystem: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(i.Folder, 0); err != nil {
			t.Error(err)
		}
	})
	content := make([]byte, 9*mi)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	i.HTTP = &launch.ImportHTTP{URL: serve(t, &website{content: read(t, image(t, "qcow2", content))})}
	wantFault(t, i, i.Run(t.Context()), "the claim is too small. An image that has to be converted")
	i.HTTP.URL = serve(t, &website{content: content})
	if err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantDisk(t, i, content, 12*mi)
}

func sparseFile(t *testing.T, path string, content []byte) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := &sparse{file: f, room: int64(len(content))}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.flush(); err != nil {
		t.Fatal(err)
	}
}

// TestImage: what another container hands out, raw and in other formats, and what it says in place of a file.
func TestImage(t *testing.T) {
	content := someDisk()
	for _, format := range []string{"raw", "qcow2"} {
		i := claim(t)
		i.File = &launch.ImportFile{Socket: filepath.Join(t.TempDir(), "s"), Image: "example.com/disk:1"}
		file := image(t, format, content)
		handOut(t, i.File.Socket, func() (*os.File, error) { return os.Open(file) })
		if err := i.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantDisk(t, i, content, whole)
	}
	i := claim(t)
	i.File = &launch.ImportFile{Socket: filepath.Join(t.TempDir(), "s"), Image: "example.com/disk:1"}
	handOut(t, i.File.Socket, func() (*os.File, error) { return nil, &filesocket.Fault{Text: "has no single disk file under /disk"} })
	wantFault(t, i, i.Run(t.Context()), "image example.com/disk:1 has no single disk file under /disk")
}

func handOut(t *testing.T, socket string, open func() (*os.File, error)) {
	t.Helper()
	l, err := filesocket.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func(l *net.UnixListener) {
		defer close(done)
		_ = filesocket.Serve(ctx, l, open)
	}(l)
	t.Cleanup(func() { end(); <-done })
}

// image is a file with a disk in a format, of qemu-img's.
func image(t *testing.T, format string, content []byte, options ...string) string {
	t.Helper()
	raw, path := filepath.Join(t.TempDir(), "raw"), filepath.Join(t.TempDir(), "image")
	sparseFile(t, raw, content)
	if format == "raw" {
		return raw
	}
	qemuImg(t, append([]string{"convert", "-f", "raw", "-O", format}, append(options, raw, path)...)...)
	return path
}

func qemuImg(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("qemu-img is not installed")
	}
	if out, err := exec.CommandContext(t.Context(), "qemu-img", args...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img %q: %v: %s", args, err, out)
	}
}

// TestDevice: a block device gets the disk, with zeros where it has none, and is left as it is by a
// blank one.
func TestDevice(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making a block device takes root")
	}
	content := someDisk()
	for _, format := range []string{"raw", "qcow2"} {
		file := image(t, format, content)
		device := loopDevice(t)
		i := claim(t)
		i.Folder, i.Device, i.Scratch = "", device, t.TempDir()
		i.Copy = &launch.ImportCopy{Path: file, Claim: "c"}
		if format != "raw" {
			i.Copy = nil
			i.HTTP = &launch.ImportHTTP{URL: serve(t, &website{content: read(t, file)})}
		}
		if err := i.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := read(t, device)[:len(content)]; !bytes.Equal(got, content) {
			t.Errorf("%s: the device has other content", format)
		}
		if left, err := os.ReadDir(i.Scratch); err != nil || len(left) > 0 {
			t.Errorf("%s: the scratch folder has %v, %v", format, left, err)
		}
	}
}

// TestDeviceInUse: what a VM writes to is not written over.
func TestDeviceInUse(t *testing.T) {
	device := loopDevice(t)
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	writer, err := disk.Exclusively(f)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	i := claim(t)
	i.Folder, i.Device, i.Scratch = "", device, t.TempDir()
	i.Copy = &launch.ImportCopy{Path: image(t, "raw", someDisk()), Claim: "c"}
	err = i.Run(t.Context())
	if !errors.Is(err, disk.ErrInUse) || !strings.Contains(err.Error(), device) {
		t.Errorf("error %v, want that %s is in use", err, device)
	}
	if got := read(t, device); !bytes.Equal(got, bytes.Repeat([]byte{0xaa}, 32*mi)) {
		t.Error("the device was written to")
	}
}

// TestSourceInUse: a disk to which a VM writes is not copied, a device or a file.
func TestSourceInUse(t *testing.T) {
	for name, path := range map[string]string{"device": loopDevice(t), "file": image(t, "raw", someDisk())} {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		writer, err := disk.Exclusively(f)
		if err != nil {
			t.Fatal(err)
		}
		if writer != nil {
			defer writer.Close()
		} else if err := disk.Lock(f, true); err != nil {
			t.Fatal(err)
		}
		i := claim(t)
		i.Copy = &launch.ImportCopy{Path: path, Claim: "golden"}
		if err := i.Run(t.Context()); !errors.Is(err, disk.ErrInUse) || !strings.Contains(err.Error(), "claim golden") {
			t.Errorf("%s: error %v, want that claim golden is in use", name, err)
		}
	}
}

// loopDevice is one of 32 MiB that is full of other data.
func loopDevice(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, bytes.Repeat([]byte{0xaa}, 32*mi), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("losetup: %v: %s", err, out)
		}
	})
	return device
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
