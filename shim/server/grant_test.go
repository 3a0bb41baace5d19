package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/posixacl"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/internal/safeopen"
	"github.com/vmlet/vmlet/shim/server/undo"
)

// TestGrantSideBySide lets many users read one image: each has access until it
// is taken back, and nothing stays.
func TestGrantSideBySide(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, memory.MemoryName)
	for _, p := range []string{path, filepath.Join(dir, memory.ManifestName)} {
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := posixacl.Revoke(path, 1); errors.Is(err, unix.ENOTSUP) {
		t.Skip(err)
	}
	var wait sync.WaitGroup
	for uid := range uint32(16) {
		wait.Go(func() {
			for range 20 {
				if err := grantOnce(path, dir, 100000+uid); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	if n, err := unix.Getxattr(path, posixacl.Attribute, nil); !errors.Is(err, unix.ENODATA) {
		t.Errorf("a list of %d bytes is left: %v", n, err)
	}
}

func grantOnce(path, dir string, uid uint32) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var undo undo.Stack
	if err := grant(&plan.User{UID: uid, GID: uid}, f, dir, false, &undo); err != nil {
		return err
	}
	list := make([]byte, 4096)
	n, err := unix.Fgetxattr(int(f.Fd()), posixacl.Attribute, list)
	if err != nil {
		return err
	}
	want := string([]byte{2, 0, 4, 0, byte(uid), byte(uid >> 8), byte(uid >> 16), byte(uid >> 24)}) // ACL_USER, r
	for at := 4; at+8 <= n; at += 8 {
		if string(list[at:at+8]) == want {
			return undo.Run()
		}
	}
	return errors.Join(fmt.Errorf("user %d has no access", uid), undo.Run())
}

// granting gives one user a file, and returns what takes that back.
func granting(t *testing.T, path string, user *plan.User, write bool) (*undo.Stack, error) {
	t.Helper()
	f, err := safeopen.File(path, write)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // as when the VMM runs
	undo := new(undo.Stack)
	return undo, grant(user, f, t.TempDir(), write, undo)
}

// listOf is a file's access list; empty: it has none.
func listOf(t *testing.T, path string) string {
	t.Helper()
	list := make([]byte, 4096)
	n, err := unix.Getxattr(path, posixacl.Attribute, list)
	if err != nil && !errors.Is(err, unix.ENODATA) {
		t.Fatal(err)
	}
	return string(list[:max(n, 0)])
}

// TestGrantedFiles has files that come to be elsewhere, somebody's or nobody's while
// a VM has them: nothing of what was given stays.
func TestGrantedFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("files are given away")
	}
	user, other := &plan.User{UID: 954321, GID: 954321}, &plan.User{UID: 954323, GID: 954323}
	for name, c := range map[string]struct {
		before, meanwhile func(path string) error
		same              bool // nothing need be given
	}{
		"as it was":      {},
		"renamed":        {meanwhile: func(path string) error { return os.Rename(path, path+".moved") }},
		"removed":        {meanwhile: os.Remove},
		"folder renamed": {meanwhile: func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+".moved") }},
		"folder removed": {meanwhile: func(path string) error { return os.RemoveAll(filepath.Dir(path)) }},
		"replaced": {meanwhile: func(path string) error {
			return errors.Join(os.Rename(path, path+".moved"), os.WriteFile(path, nil, 0o600))
		}},
		"the user's own": {before: func(path string) error { return os.Chown(path, int(user.UID), 0) }, same: true},
		"its group's":    {before: func(path string) error { return errors.Join(os.Chown(path, 0, int(user.GID)), os.Chmod(path, 0o660)) }, same: true},
		"all users'":     {before: func(path string) error { return os.Chmod(path, 0o666) }, same: true},
		"a device": {before: func(path string) error {
			return errors.Join(os.Remove(path), unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
		}},
		"with another user": {before: func(path string) error { return posixacl.Grant(path, other.UID, posixacl.Read) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "disks")
			path := filepath.Join(dir, "disk")
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			if c.before != nil {
				if err := c.before(path); errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) {
					t.Skip(err)
				} else if err != nil {
					t.Fatal(err)
				}
			}
			before := listOf(t, path)
			undo, err := granting(t, path, user, true)
			if errors.Is(err, unix.ENOTSUP) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if (listOf(t, path) == before) != c.same {
				t.Errorf("the list is %q, and was %q", listOf(t, path), before)
			}
			held, err := os.OpenFile(path, unix.O_PATH, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			if c.meanwhile != nil {
				if err := c.meanwhile(path); err != nil {
					t.Fatal(err)
				}
			}
			if err := undo.Run(); err != nil {
				t.Error(err)
			}
			if after := listOf(t, fmt.Sprintf("/proc/self/fd/%d", held.Fd())); after != before {
				t.Errorf("the list is %q, and was %q", after, before)
			}
		})
	}
}

// TestLockedFolder: who can read the folder of a disk can keep it locked (flock(2)), and
// is not waited for. What is locked instead is root's alone.
func TestLockedFolder(t *testing.T) {
	dir := t.TempDir()
	run, path := filepath.Join(dir, "run"), filepath.Join(dir, "disk")
	if err := errors.Join(os.Mkdir(run, 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	stranger, err := os.Open(dir)
	if err == nil {
		defer stranger.Close()
		err = unix.Flock(int(stranger.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	options := &Options{RunDir: filepath.Join(run, "vm") + "/"}
	o := &opener{plan: &plan.Plan{User: &plan.User{UID: 954321, GID: 954321}}, lock: options.listLock(), undo: new(undo.Stack)}
	_, err = o.one(t.Context(), &plan.File{Kind: plan.FilePath, Path: path, Write: true, Granted: true})
	defer o.release()
	if errors.Is(err, unix.ENOTSUP) {
		t.Skip(err)
	}
	if err := errors.Join(err, o.undo.Run()); err != nil {
		t.Error(err)
	}
}

// TestGrantWithoutLists says what to do where there are none.
func TestGrantWithoutLists(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "ramfs", 0, ""); err != nil {
		t.Skip(err)
	}
	defer unix.Unmount(dir, 0)
	path := filepath.Join(dir, "disk")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	undo, err := granting(t, path, &plan.User{UID: 954321, GID: 954321}, true)
	if !errors.Is(err, unix.ENOTSUP) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "ext4") {
		t.Error(err)
	}
	if err := undo.Run(); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := granting(t, path, &plan.User{UID: 954321, GID: 954321}, true); err != nil {
		t.Errorf("all may open it: %v", err)
	}
}
