package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/posixacl"
	"github.com/vmlet/vmlet/vmm/memory"
	"github.com/vmlet/vmlet/vmm/plan"
)

const accessList = "system.posix_acl_access"

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
	if n, err := unix.Getxattr(path, accessList, nil); !errors.Is(err, unix.ENODATA) {
		t.Errorf("a list of %d bytes is left: %v", n, err)
	}
}

func grantOnce(path, dir string, uid uint32) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var undo undoStack
	if err := grant(&plan.User{UID: uid, GID: uid}, f, dir, false, &undo); err != nil {
		return err
	}
	list := make([]byte, 4096)
	n, err := unix.Fgetxattr(int(f.Fd()), accessList, list)
	if err != nil {
		return err
	}
	want := string([]byte{2, 0, 4, 0, byte(uid), byte(uid >> 8), byte(uid >> 16), byte(uid >> 24)}) // ACL_USER, r
	for at := 4; at+8 <= n; at += 8 {
		if string(list[at:at+8]) == want {
			return undo.run()
		}
	}
	return errors.Join(fmt.Errorf("user %d has no access", uid), undo.run())
}
