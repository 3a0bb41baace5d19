package faultfs

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// FS is a mounted filesystem. Its methods may be called concurrently.
type FS struct {
	path    string // where it is mounted
	backing string // the folder that it shows
	server  *fuse.Server
	script  script
	journal journal
}

// Mount shows the folder backing at the folder path, to all users, with permissions
// checked by the kernel and access lists if backing's filesystem has them.
func Mount(backing, path string) (*FS, error) {
	f := &FS{path: path, backing: backing}
	var st unix.Stat_t
	if err := unix.Stat(backing, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: backing, Err: err}
	}
	root, err := fs.NewLoopbackRoot(backing)
	if err != nil {
		return nil, err
	}
	loopback, ok := root.(*fs.LoopbackNode)
	if !ok {
		return nil, fmt.Errorf("the loopback's root is a %T", root)
	}
	f.server, err = fs.Mount(path, &node{loopback, f}, &fs.Options{
		NullPermissions: true,
		RootStableAttr:  &fs.StableAttr{Ino: st.Ino}, // as the folder below, for the journal
		MountOptions: fuse.MountOptions{
			FsName: "faultfs", Name: "faultfs",
			DirectMountStrict: true, // no fusermount
			AllowOther:        true,
			EnableAcl:         true,
			Options:           []string{"default_permissions"},
			SyncRead:          true, // reads come in order: the N-th is the same each time
			// Files are read and written through this process, which splicing would pass by.
			DisableSplice:      true,
			DisableReadDirPlus: true,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("mount a FUSE filesystem on %s: %w", path, err)
	}
	return f, nil
}

// Path is where the filesystem is mounted.
func (f *FS) Path() string { return f.path }

// Backing is the folder that it shows, where no fault happens.
func (f *FS) Backing() string { return f.backing }

// Unmount ends it. What is still open fails from now on. By force: a mount namespace
// that another process has made meanwhile has the filesystem, too, and would keep it.
func (f *FS) Unmount() error {
	f.Disarm()
	if err := unix.Unmount(f.path, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
		return &os.PathError{Op: "unmount", Path: f.path, Err: err}
	}
	f.server.Wait()
	return nil
}

// ForTest mounts one until the test ends, over a folder of its own: in memory where
// that can be had, since what a disk takes its time for is not looked at. The test is
// skipped where nothing can be mounted.
func ForTest(t testing.TB) *FS {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a filesystem")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skipf("needs FUSE in the kernel: %v", err)
	}
	backing, path := MemoryDir(t), t.TempDir()
	if err := errors.Join(os.Chmod(backing, 0o755), os.Chmod(path, 0o755)); err != nil {
		t.Fatal(err)
	}
	f, err := Mount(backing, path)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENODEV) {
		t.Skipf("FUSE can't be used here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Unmount(); err != nil {
			t.Errorf("left mounted: %v", err)
		}
	})
	return f
}

// MemoryDir returns a folder in memory, where that can be had, until the test ends.
func MemoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "faultfs-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// errnoName is ENOSPC and the like.
func errnoName(e syscall.Errno) string {
	if name := unix.ErrnoName(e); name != "" {
		return name
	}
	return e.Error()
}
