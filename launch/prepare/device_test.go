package prepare

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/launch"
)

// TestDeviceSize: it is sysfs that says it, as nobody may have opened the device to the user.
func TestDeviceSize(t *testing.T) {
	folder := t.TempDir()
	device, file := filepath.Join(folder, "device"), filepath.Join(folder, "file")
	if err := unix.Mknod(device, unix.S_IFBLK, int(unix.Mkdev(7, 250))); err != nil {
		t.Skipf("can't make device nodes: %v", err)
	}
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, path, sysfs string
		size              int64
		is                bool
		want              string // of the error; empty: none
	}{
		{"a device", device, "131072\n", 64 << 20, true, ""},
		{"without a medium", device, "0\n", 0, true, `has "0\n"`},
		{"of an impossible size", device, "18014398509481984\n", 0, true, "the size of device"},
		{"unknown to sysfs", device, "", 0, true, "no such file"},
		{"a file", file, "", 0, false, ""},
		{"nothing", filepath.Join(folder, "nonesuch"), "", 0, false, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			sysfs := t.TempDir()
			if test.sysfs != "" {
				if err := errors.Join(os.Mkdir(filepath.Join(sysfs, "7:250"), 0o755),
					os.WriteFile(filepath.Join(sysfs, "7:250", "size"), []byte(test.sysfs), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			size, is, err := deviceSize(sysfs, test.path)
			if size != test.size || is != test.is {
				t.Errorf("%d, %t; want %d, %t", size, is, test.size, test.is)
			}
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestOverDevice: a device is raw, and not looked at.
func TestOverDevice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.qcow2")
	made, err := overDevice(launch.Overlay{Base: "/dev/vmlet/d"}, path, 64<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(made.BackingFiles) != 1 || made.BackingFiles[0] != (backing{"/dev/vmlet/d", disk.Raw}) {
		t.Errorf("it lies over %+v", made.BackingFiles)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := disk.Probe(f)
	if err != nil {
		t.Fatal(err)
	}
	if info.VirtualSize != 64<<20 || info.Header.BackingFile != "/dev/vmlet/d" {
		t.Errorf("an overlay of %d bytes over %q", info.VirtualSize, info.Header.BackingFile)
	}
	if _, err := overDevice(launch.Overlay{Base: "/dev/vmlet/d", Size: 1 << 20}, path, 64<<20, nil); err == nil || !strings.Contains(err.Error(), "can't be shrunk") {
		t.Errorf("shrunk: %v", err)
	}
}
