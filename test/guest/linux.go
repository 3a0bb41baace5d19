package guest

import (
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// initSource is what the initramfs's program is made from; it is here so that
// an initramfs that is older than its source is noticed.
//
//go:embed init/*.go
var initSource embed.FS

// Linux returns the paths of Debian's cloud kernel and of an initramfs whose
// init counts and answers commands; see test/guest/init for what it can do. The
// initramfs is built with the go command when the cache has none made from the
// present source; that takes seconds once. Both files can be read by any user.
//
// With root=DEVICE on the kernel's command line the initramfs loads its modules
// and hands over to the init on that device.
//
// The error is a [*MissingError] if test/setup has not fetched a kernel. Safe
// for concurrent use, by several processes too.
func Linux(ctx context.Context) (kernel, initrd string, err error) {
	dir, err := Cached("linux")
	if err != nil {
		return "", "", err
	}
	// The link names a version: with that, the initramfs fits this kernel.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", "", err
	}
	key, err := initrdKey(filepath.Base(dir))
	if err != nil {
		return "", "", err
	}
	initrd = filepath.Join(filepath.Dir(dir), "initrd-"+key)
	if _, err := os.Stat(initrd); err != nil {
		if err := buildInitrd(ctx, initrd, filepath.Join(dir, "modules")); err != nil {
			return "", "", fmt.Errorf("making %s: %w", initrd, err)
		}
	}
	return filepath.Join(dir, "vmlinuz"), initrd, nil
}

// initrdKey differs whenever the initramfs would.
func initrdKey(kernel string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, kernel, runtime.Version(), strings.Join(guestModules(), " "))
	err := fs.WalkDir(initSource, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		f, err := initSource.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		fmt.Fprintln(sum, path)
		_, err = io.Copy(sum, f)
		return err
	})
	return fmt.Sprintf("%.12x", sum.Sum(nil))[:12], err
}

// buildInitrd writes an initramfs to path, which appears whole or not at all.
func buildInitrd(ctx context.Context, path, modulesDir string) error {
	work, err := os.MkdirTemp(filepath.Dir(path), ".initrd-")
	if err != nil {
		return fmt.Errorf("%w: set VMLET_CACHE to a folder of your own and run test/setup again", err)
	}
	defer os.RemoveAll(work)

	program := filepath.Join(work, "init")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program,
		"github.com/vmlet/vmlet/test/guest/init")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	modules, err := modulesWith(modulesDir, guestModules())
	if err != nil {
		return err
	}
	unfinished := filepath.Join(work, "initrd")
	if err := os.WriteFile(unfinished, initramfs(content, modules), 0o644); err != nil {
		return err
	}
	if err := os.Chmod(unfinished, 0o644); err != nil { // whatever the umask is
		return err
	}
	return os.Rename(unfinished, path)
}

// initramfs packs a program and kernel modules the way that test/guest/init
// expects them. It is not compressed: for an emulated guest unpacking costs
// more than the few MiB.
func initramfs(program []byte, modules []module) []byte {
	var a archive
	for _, dir := range []string{"dev", "proc", "sys", "root", "modules"} {
		a.add(dir, modeDir, 0, 0, nil)
	}
	a.add("dev/console", modeChar, 5, 1, nil)
	a.add("init", modeExec, 0, 0, program)
	var order strings.Builder
	for _, m := range modules {
		file := m.name + ".ko"
		a.add("modules/"+file, modeFile, 0, 0, m.content)
		fmt.Fprintln(&order, file)
	}
	a.add("modules/order", modeFile, 0, 0, []byte(order.String()))
	return a.close()
}

// CloudDisk returns the path of a qcow2 image: a Debian root filesystem (ext4,
// no partition table) with systemd, QEMU and cloud-init, which takes its user-data
// from a disk or CD-ROM labelled cidata. It boots with the kernel and initramfs
// of [Linux] and [CloudDiskCmdline], as the first virtio disk. It is shared:
// use it read-only or below an overlay, never as it is.
//
// The error is a [*MissingError] if test/setup has not made it.
func CloudDisk(context.Context) (string, error) {
	path, err := Cached("cloud-disk", "disk.qcow2")
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// CloudDiskCmdline is the kernel command line for [CloudDisk].
const CloudDiskCmdline = "console=ttyS0 root=/dev/vda quiet no_timer_check"
