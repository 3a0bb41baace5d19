package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/interrupted"
	"github.com/vmlet/vmlet/internal/posixacl"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/server/undo"
)

// mayOpen tells by owner and mode whether a user could open the file; want is made
// of unix.R_OK, W_OK and X_OK. With an access control list it says no.
func mayOpen(file *os.File, user *plan.User, want uint32) (bool, error) {
	if user == nil {
		return true, nil // this process's own user has just opened it
	}
	var st unix.Stat_t
	if err := interrupted.Retry(func() error { return unix.Fstat(int(file.Fd()), &st) }); err != nil {
		return false, &os.PathError{Op: "stat", Path: file.Name(), Err: err}
	}
	if listed(func() (int, error) { return unix.Fgetxattr(int(file.Fd()), posixacl.Attribute, nil) }) {
		return false, nil
	}
	return modeFor(&st, user)&want == want, nil
}

// listed says whether there is an access control list, of which size tells the length.
func listed(size func() (int, error)) bool {
	n, err := interrupted.RetryInt(size)
	return err == nil && n > 0
}

// modeFor is what a mode allows a user, in the lowest three bits.
func modeFor(st *unix.Stat_t, user *plan.User) uint32 {
	member := st.Gid == user.GID
	for _, gid := range user.Groups {
		member = member || st.Gid == gid
	}
	switch {
	case st.Uid == user.UID:
		return st.Mode >> 6
	case member:
		return st.Mode >> 3
	}
	return st.Mode
}

// grant lets the VMM's user open a file again, until undo. Another shim may be
// doing the same: one waits for the other, as a change of a list that is made between
// reading and writing it would be lost. What is locked for that is a folder that root
// alone can open: anyone who can open it can keep it locked, and a VMM whose user can
// read the folder of other VMs' disks would keep those from being started.
func grant(user *plan.User, f *os.File, lock string, write bool, undo *undo.Stack) error {
	want, perm := uint32(unix.R_OK), posixacl.Read
	if write {
		want, perm = want|unix.W_OK, perm|posixacl.Write
	}
	if enough, err := mayOpen(f, user, want); err != nil || enough {
		return err
	}
	// The VMM's descriptor is closed here when it runs. Until access is taken back
	// both may be moved.
	own, err := os.OpenFile(linkTo(f), unix.O_PATH, 0)
	if err != nil {
		return err
	}
	undo.Push(own.Close)
	place, err := os.OpenFile(lock, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	undo.Push(place.Close)
	err = posixacl.Exclusively(lock, func() error { return posixacl.GrantFile(f, user.UID, perm) })
	if errors.Is(err, unix.ENOTSUP) {
		err = fmt.Errorf("%w: keep it on one that has them (ext4, XFS, Btrfs, tmpfs), or let all users open it", err)
	}
	if err != nil {
		return err
	}
	undo.Push(func() error {
		return posixacl.Exclusively(linkTo(place), func() error { return posixacl.RevokeFile(own, user.UID) })
	})
	return nil
}

// linkTo leads to the very file, wherever it is by now.
func linkTo(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// passable refuses a path that a user can't get to. A folder with an access control
// list is taken to let them through.
func passable(path string, user *plan.User) error {
	if user == nil {
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for dir := filepath.Dir(real); ; dir = filepath.Dir(dir) {
		if err := passableFolder(path, dir, user); err != nil || dir == "/" {
			return err
		}
	}
}

func passableFolder(path, dir string, user *plan.User) error {
	var st unix.Stat_t
	if err := interrupted.Retry(func() error { return unix.Stat(dir, &st) }); err != nil {
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if modeFor(&st, user)&unix.X_OK != 0 {
		return nil
	}
	if listed(func() (int, error) { return unix.Getxattr(dir, posixacl.Attribute, nil) }) {
		return nil
	}
	return contract.Errorf("%s: the VMM opens it by its name, and its user %d can't get through %s (mode %#o): chmod o+x %s, or keep the file elsewhere",
		contract.ObjectName(path), user.UID, dir, st.Mode&0o7777, dir)
}
