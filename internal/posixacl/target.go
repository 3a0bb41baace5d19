package posixacl

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/interrupted"
)

// Attribute has the list (XATTR_NAME_POSIX_ACL_ACCESS, linux/xattr.h).
const Attribute = "system.posix_acl_access"

// target is a file whose attribute is read and written.
type target interface {
	stat() (unix.Stat_t, error)
	get() ([]byte, error)
	set([]byte) error
}

type pathTarget string

func (p pathTarget) stat() (st unix.Stat_t, err error) {
	err = interrupted.Retry(func() error { return unix.Lstat(string(p), &st) })
	return st, err
}

func (p pathTarget) set(b []byte) error {
	return interrupted.Retry(func() error { return unix.Lsetxattr(string(p), Attribute, b, 0) })
}

func (p pathTarget) get() ([]byte, error) {
	return getAll(func(b []byte) (int, error) { return unix.Lgetxattr(string(p), Attribute, b) })
}

type fileTarget struct{ f *os.File }

func (t fileTarget) stat() (st unix.Stat_t, err error) {
	err = interrupted.Retry(func() error { return unix.Fstat(int(t.f.Fd()), &st) })
	return st, err
}

func (t fileTarget) set(b []byte) error {
	return interrupted.Retry(func() error { return unix.Setxattr(t.link(), Attribute, b, 0) })
}

// link leads to the very file, also where it is open with O_PATH, with which
// fsetxattr(2) and fgetxattr(2) do nothing.
func (t fileTarget) link() string { return fmt.Sprintf("/proc/self/fd/%d", t.f.Fd()) }

func (t fileTarget) get() ([]byte, error) {
	return getAll(func(b []byte) (int, error) { return unix.Getxattr(t.link(), Attribute, b) })
}

// maxAttribute bounds an attribute's size in bytes: XATTR_SIZE_MAX, linux/limits.h.
const maxAttribute = 65536

// getAll tries a buffer for a short list first.
func getAll(get func([]byte) (int, error)) ([]byte, error) {
	b := make([]byte, headerSize+16*entrySize)
	n, err := interrupted.RetryInt(func() (int, error) { return get(b) })
	if errors.Is(err, unix.ERANGE) {
		b = make([]byte, maxAttribute)
		n, err = interrupted.RetryInt(func() (int, error) { return get(b) })
	}
	if err != nil {
		return nil, err
	}
	return b[:n], nil
}
