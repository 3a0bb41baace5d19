package server

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/internal/filesocket"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/server/undo"
)

// handOut is another container, which hands out what open returns.
func handOut(t *testing.T, path string, open func() (*os.File, error)) {
	t.Helper()
	l, err := filesocket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- filesocket.Serve(ctx, l, open) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestHandedOut: a file of another container is as good as one of the shim's own: it is
// checked, locked and told from others.
func TestHandedOut(t *testing.T) {
	sockets, image := t.TempDir(), filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(sockets, "root.sock")
	handOut(t, socket, func() (*os.File, error) { return os.Open(image) })
	undo := new(undo.Stack)
	o := &opener{plan: &plan.Plan{Restore: new(plan.Restore)}, sockets: sockets, undo: undo}
	f := &plan.File{
		Kind: plan.FilePath, Field: "disks[0].backingFiles[0].path", Path: socket, PartOf: "root", Layer: 1, Direct: true,
		Disk: &disk.Expectation{Field: "disks[0].backingFiles[0]", Image: disk.Image{Path: socket, Format: disk.Raw}},
	}
	file, err := o.one(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	want, err := disk.Identify(own)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.disks) != 1 || o.disks[0].held == nil || *o.disks[0].held != want {
		t.Errorf("its identity is %+v, want %+v", o.disks, want)
	}
	writer, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := disk.Lock(writer, true); !errors.Is(err, disk.ErrInUse) {
		t.Errorf("another may write to it: %v", err)
	}
	if flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
	// The image's container may end, and its file go.
	if err := os.Remove(image); err != nil {
		t.Fatal(err)
	}
	if _, err := identify(o.disks); err != nil {
		t.Error(err)
	}
	o.release()
	if err := undo.Run(); err != nil {
		t.Error(err)
	}
}

func TestNotHandedOut(t *testing.T) {
	sockets := t.TempDir()
	socket := filepath.Join(sockets, "boot.kernel.sock")
	handOut(t, socket, func() (*os.File, error) {
		return nil, errors.New("has no file /boot/vmlinuz; found in /boot: /boot/vmlinux")
	})
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("asked to end"))
	for name, test := range map[string]struct {
		ctx  context.Context
		file plan.File
		want string
	}{
		"fault":    {t.Context(), plan.File{Path: socket}, "boot.kernel.path: its image has no file /boot/vmlinuz; found in /boot: /boot/vmlinux"},
		"writable": {t.Context(), plan.File{Path: socket, Write: true}, "for reading only: make the disk read-only"},
		"by name":  {t.Context(), plan.File{Path: socket, ByName: true}, "opens it by its name: use QEMU"},
		"silent":   {gone, plan.File{Path: filepath.Join(sockets, "x.sock")}, "asked to end"},
	} {
		test.file.Kind, test.file.Field = plan.FilePath, "boot.kernel.path"
		o := &opener{plan: &plan.Plan{Files: []plan.File{test.file}}, sockets: sockets, undo: new(undo.Stack)}
		if err := o.all(test.ctx); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestSocketsOfNoPod: where nobody hands out files a path is a path.
func TestSocketsOfNoPod(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kernel")
	if err := os.WriteFile(path, []byte("kernel"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sockets := range []string{"", filepath.Join(dir, "sockets")} {
		o := &opener{plan: new(plan.Plan), sockets: sockets, undo: new(undo.Stack)}
		f, err := o.one(t.Context(), &plan.File{Kind: plan.FilePath, Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if content, err := io.ReadAll(f); err != nil || string(content) != "kernel" {
			t.Errorf("%q, %v", content, err)
		}
		o.release()
	}
}

// TestVolumes: a link in a volume of the pod, whoever made it, leads nowhere.
func TestVolumes(t *testing.T) {
	pod := t.TempDir()
	volumes, elsewhere := filepath.Join(pod, "disks"), filepath.Join(pod, "secret")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(volumes, "a"), 0o700))
	must(os.WriteFile(elsewhere, []byte("secret"), 0o600))
	must(os.WriteFile(filepath.Join(volumes, "a", "disk.img"), []byte("disk"), 0o600))
	must(os.Symlink(elsewhere, filepath.Join(volumes, "a", "out")))
	must(os.Symlink("disk.img", filepath.Join(volumes, "a", "in")))
	must(os.Symlink("a", filepath.Join(volumes, "b")))
	o := &opener{plan: new(plan.Plan), sockets: filepath.Join(pod, "sockets"), volumes: []string{volumes}}
	for name, readable := range map[string]bool{
		"disks/a/disk.img": true, "disks/a/out": false, "disks/a/in": false, "disks/b/disk.img": false, "disks/a/../../secret": true,
	} {
		f, err := o.open(t.Context(), &plan.File{Path: pod + "/" + name})
		if (err == nil) != readable {
			t.Errorf("%s: error %v, want it to be opened: %v", name, err, readable)
		}
		if err == nil {
			must(f.Close())
		}
	}
}
