// Package posixacl grants single users access to files through POSIX access
// control lists, without running setfacl.
//
// The list is the extended attribute system.posix_acl_access, laid out as in
// linux/posix_acl_xattr.h; the permission check is that of acl(5). Changes read
// the list and write it back: two at the same time on one file lose one of
// them, so callers serialise their own.
package posixacl

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Perm is a set of permissions, as in a file's mode.
type Perm uint16

const (
	Execute Perm = 1 << iota
	Write
	Read

	allPerms = Read | Write | Execute
)

// Grant gives the user uid at least perm on the file, besides what others have.
// For the file's owner, whom no list can give anything, it checks that they
// have perm. Symbolic links are not followed. On a filesystem without access
// control lists the error wraps unix.ENOTSUP.
func Grant(path string, uid uint32, perm Perm) error {
	return wrap("grant", path, uid, grant(pathTarget(path), uid, perm))
}

// GrantFile is Grant for an open file, which may be open with O_PATH.
func GrantFile(f *os.File, uid uint32, perm Perm) error {
	return wrap("grant", f.Name(), uid, grant(fileTarget{f}, uid, perm))
}

// Revoke takes away what Grant gave the user; that they had nothing is no
// error. What others could do stays as it was.
func Revoke(path string, uid uint32) error {
	return wrap("revoke", path, uid, revoke(pathTarget(path), uid))
}

// RevokeFile is Revoke for an open file, which may be open with O_PATH.
func RevokeFile(f *os.File, uid uint32) error {
	return wrap("revoke", f.Name(), uid, revoke(fileTarget{f}, uid))
}

func wrap(op, path string, uid uint32, err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	if errors.Is(err, unix.ENOTSUP) {
		hint = " (its filesystem has no access control lists)"
	}
	return fmt.Errorf("%s: %s access for user %d%s: %w", path, op, uid, hint, err)
}

func grant(t target, uid uint32, perm Perm) error {
	if perm == 0 || perm&^allPerms != 0 {
		return fmt.Errorf("permissions %#o: %w", perm, unix.EINVAL)
	}
	l, owner, err := load(t)
	if err != nil {
		return err
	}
	if owner == uid {
		if has := l.at(tagOwner, 0).perm; has&perm != perm {
			return fmt.Errorf("the user owns the file and its mode gives them %#o, not %#o: %w", has, perm, unix.EACCES)
		}
		return nil
	}
	l.grant(uid, perm)
	return t.set(l.encode())
}

func revoke(t target, uid uint32) error {
	l, _, err := load(t)
	if err != nil {
		return err
	}
	if !l.revoke(uid) {
		return nil
	}
	return t.set(l.encode())
}

// load returns the file's list, made from its mode if it has none, and its owner.
func load(t target) (list, uint32, error) {
	st, err := t.stat()
	if err != nil {
		return nil, 0, err
	}
	raw, err := t.get()
	if errors.Is(err, unix.ENODATA) {
		return fromMode(st.Mode), st.Uid, nil
	}
	if err != nil {
		return nil, 0, err
	}
	l, err := decode(raw)
	return l, st.Uid, err
}
