package disk

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// attachLoop attaches a file to a loop device, until detach or the test's end.
func attachLoop(t *testing.T, path string) (device string, detach func()) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", path).CombinedOutput()
	if err != nil {
		t.Skipf("losetup: %v: %s", err, out)
	}
	device = strings.TrimSpace(string(out))
	done := false
	detach = func() {
		if done {
			return
		}
		done = true
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("losetup --detach %s: %v: %s", device, err, out)
		}
	}
	t.Cleanup(detach)
	return device, detach
}

func mount(t *testing.T, source, target, kind string) (unmount func()) {
	t.Helper()
	if err := unix.Mount(source, target, kind, 0, ""); err != nil {
		if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EPERM) {
			t.Skipf("mount %s: %v", kind, err)
		}
		t.Fatalf("mount %s on %s: %v", source, target, err)
	}
	done := false
	unmount = func() {
		if done {
			return
		}
		done = true
		if err := unix.Unmount(target, 0); err != nil {
			t.Errorf("unmount %s: %v", target, err)
		}
	}
	t.Cleanup(unmount)
	return unmount
}

// A volume that is attached again has another device number, and its disks are unchanged unless they changed.
func TestVolumeAttachedAgain(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(kind, func(t *testing.T) {
			mkfs, err := exec.LookPath("mkfs." + kind)
			if err != nil {
				t.Skip(err)
			}
			dir := t.TempDir()
			volume, target := filepath.Join(dir, "volume"), filepath.Join(dir, "mnt")
			if err := errors.Join(os.WriteFile(volume, nil, 0o600), os.Truncate(volume, 512<<20), os.Mkdir(target, 0o700)); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), mkfs, "-q", volume).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", mkfs, err, out)
			}
			path := filepath.Join(target, "disk.raw")
			device, detach := attachLoop(t, volume)
			unmount := mount(t, device, target, kind)
			if err := os.WriteFile(path, make([]byte, 4<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			before := identifyPath(t, path)
			if before.FilesystemUUID == "" && before.FilesystemID == "" {
				t.Error("the filesystem has no identity")
			}
			unmount()
			detach()

			// Something else has the number meanwhile.
			other := filepath.Join(dir, "other")
			if err := errors.Join(os.WriteFile(other, nil, 0o600), os.Truncate(other, 1<<20)); err != nil {
				t.Fatal(err)
			}
			taken, _ := attachLoop(t, other)
			device, _ = attachLoop(t, volume)
			mount(t, device, target, kind)
			after := identifyPath(t, path)
			if before.Device == after.Device && kind != "btrfs" {
				t.Errorf("the device number is the same: nothing was tried (%s was taken)", taken)
			}
			if got := Changed(before, after); len(got) > 0 {
				t.Errorf("attached again: %q, want no change", got)
			}
			if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			if got := Changed(before, identifyPath(t, path)); len(got) != 1 || !strings.HasPrefix(got[0], "modified at ") {
				t.Errorf("then written to: %q, want that it was modified", got)
			}
		})
	}
}

// What is on a tmpfs goes with it: the same name on another one is another disk.
func TestAnotherTmpfs(t *testing.T) {
	dir, moment := t.TempDir(), time.Unix(1e9, 0)
	made := func() Identity {
		mount(t, "tmpfs", dir, "tmpfs")
		path := filepath.Join(dir, "disk.raw")
		if err := errors.Join(os.WriteFile(path, make([]byte, 4096), 0o600), os.Chtimes(path, moment, moment)); err != nil {
			t.Fatal(err)
		}
		return identifyPath(t, path)
	}
	if got := Changed(made(), made()); len(got) == 0 {
		t.Error("taken for the same disk")
	}
}

// A block device: what is known to have changed, and that nothing shows that it hasn't.
func TestBlockDevice(t *testing.T) {
	backing := filepath.Join(t.TempDir(), "backing")
	if err := errors.Join(os.WriteFile(backing, nil, 0o600), os.Truncate(backing, 8<<20)); err != nil {
		t.Fatal(err)
	}
	device, _ := attachLoop(t, backing)
	before := identifyPath(t, device)
	if before.Kind != KindBlock || before.Provable() || before.Size != 8<<20 || before.ModTimeNs != 0 {
		t.Errorf("identity %+v", before)
	}
	if got := Changed(before, identifyPath(t, device)); len(got) > 0 {
		t.Errorf("%q, want no change", got)
	}
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		t.Skip(err)
	}
	if out, err := exec.CommandContext(t.Context(), mkfs, "-q", device).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", mkfs, err, out)
	}
	formatted := identifyPath(t, device)
	if got := Changed(before, formatted); len(got) != 1 || !strings.HasPrefix(got[0], "content differs") {
		t.Errorf("formatted: %q, want other content", got)
	}
	target := t.TempDir()
	mount(t, device, target, "ext4")()
	if got := Changed(formatted, identifyPath(t, device)); len(got) != 1 || !strings.HasPrefix(got[0], "content differs") {
		t.Errorf("mounted once: %q, want other content", got)
	}
}

// qemu-img commit writes into the base, and rebase leaves it as it is.
func TestCommitChangesTheBase(t *testing.T) {
	dir := t.TempDir()
	qemuImg(t, dir, "create", "-q", "-f", "qcow2", "base", "1M")
	qemuImg(t, dir, "create", "-q", "-f", "qcow2", "-b", "base", "-F", "qcow2", "top")
	base := filepath.Join(dir, "base")
	before := identifyPath(t, base)
	qemuImg(t, dir, "info", "top")
	if got := Changed(before, identifyPath(t, base)); len(got) > 0 {
		t.Errorf("looked at: %q, want no change", got)
	}
	if out, err := exec.Command("qemu-io", "-c", "write 0 64k", filepath.Join(dir, "top")).CombinedOutput(); err != nil {
		t.Skipf("qemu-io: %v: %s", err, out)
	}
	qemuImg(t, dir, "commit", "-q", "top")
	if got := Changed(before, identifyPath(t, base)); !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "modified at ") }) {
		t.Errorf("committed into: %q, want that it was modified", got)
	}
}

func identifyPath(t *testing.T, path string) Identity {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return identify(t, f)
}
