package disk_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/test/loopdevice"
)

// openExclusively is disk.Exclusively by a path.
func openExclusively(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return disk.Exclusively(f)
}

// TestExclusively: a block device has one writer at a time, by whatever node it is opened, and none while
// it is mounted. Readers, and files, are left alone.
func TestExclusively(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := openExclusively(file, os.O_RDWR); f != nil || err != nil {
		t.Errorf("a file: %v, %v, want neither", f, err)
	}

	device := loopdevice.New(t, 1<<20)
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(t.TempDir(), "node") // as each container has one
	if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(st.Rdev)); err != nil {
		t.Skip(err)
	}
	if f, err := os.Open(node); err != nil {
		t.Skipf("a device node can't be opened here: %v", err)
	} else {
		f.Close()
	}
	first, err := openExclusively(device, os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.WriteAt(make([]byte, 512), 0); err != nil {
		t.Errorf("the only writer: %v", err)
	}
	for _, path := range []string{device, node} {
		_, err := openExclusively(path, os.O_RDWR)
		var used *disk.DeviceInUseError
		if !errors.As(err, &used) || !errors.Is(err, disk.ErrInUse) {
			t.Errorf("%s: a second writer: %v, want that the device is in use", path, err)
			continue
		}
		if want := "block device " + used.Device + " is in use"; !strings.HasPrefix(err.Error(), want) || !strings.HasPrefix(used.Device, "7:") {
			t.Errorf("error %q does not begin with %q of a loop device", err, want)
		}
	}
	if f, err := openExclusively(node, os.O_RDONLY); f != nil || err != nil {
		t.Errorf("a reader: %v, %v, want neither", f, err)
	}
	first.Close()
	again, err := openExclusively(node, os.O_RDWR)
	if err != nil {
		t.Fatalf("when the first is closed: %v", err)
	}
	again.Close()
}

// TestCheckFree: those that share a device find one that another has for itself, by whatever node, and are in
// each other's way as little as in that of one that comes later.
func TestCheckFree(t *testing.T) {
	device := loopdevice.New(t, 1<<20)
	shared, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	var together sync.WaitGroup
	for range 8 {
		together.Go(func() {
			if err := disk.CheckFree(shared); err != nil {
				t.Errorf("nobody has the device: %v", err)
			}
		})
	}
	together.Wait()
	alone, err := openExclusively(device, os.O_RDWR)
	if err != nil {
		t.Fatalf("one that comes later: %v", err)
	}
	var used *disk.DeviceInUseError
	if err := disk.CheckFree(shared); !errors.As(err, &used) {
		t.Errorf("another has the device: %v, want that it is in use", err)
	}
	alone.Close()
	if err := disk.CheckFree(shared); err != nil {
		t.Errorf("when that is closed: %v", err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := disk.CheckFree(file); err != nil {
		t.Errorf("a file: %v", err)
	}
}

// TestExclusivelyFails: an error that says nothing of other writers is no free device, and no device in use.
func TestExclusivelyFails(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "closed"))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	exclusive, err := disk.Exclusively(f)
	if exclusive != nil {
		t.Error("a closed file was opened")
	}
	for what, err := range map[string]error{"Exclusively": err, "CheckFree": disk.CheckFree(f)} {
		if err == nil || errors.Is(err, disk.ErrInUse) {
			t.Errorf("%s of a closed file: %v, want an error, and not that it is in use", what, err)
		}
	}
}

// TestExclusivelyOfMounted: a filesystem that is mounted is nobody else's to write to.
func TestExclusivelyOfMounted(t *testing.T) {
	device := loopdevice.New(t, 8<<20)
	if out, err := exec.CommandContext(t.Context(), "mkfs.ext4", "-q", device).CombinedOutput(); err != nil {
		t.Skipf("mkfs.ext4: %v: %s", err, out)
	}
	folder := t.TempDir()
	if err := unix.Mount(device, folder, "ext4", 0, ""); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(folder, 0); err != nil {
			t.Error(err)
		}
	})
	if _, err := openExclusively(device, os.O_RDWR); !errors.Is(err, disk.ErrInUse) {
		t.Errorf("%v, want that the device is in use", err)
	}
}
