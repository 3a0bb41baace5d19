package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/plan"
)

// copyOf is a copy of a file that the VMM's user can read.
func (o *opener) copyOf(f *plan.File, file *os.File) (*os.File, error) {
	if f.Named {
		return o.namedCopy(file, fmt.Sprintf("copy-%d", len(o.files)))
	}
	sealed, err := sealedCopy(file)
	if err != nil {
		return nil, err
	}
	o.own = append(o.own, sealed)
	return sealed, nil
}

// namedCopy is a copy in the VMM's folder, with which it goes.
func (o *opener) namedCopy(file *os.File, name string) (*os.File, error) {
	if o.folder == nil {
		return nil, errors.New("the plan has a copy with a name, and no folder before it")
	}
	size, err := copyable(file)
	if err != nil {
		return nil, err
	}
	out, err := o.folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if _, err := io.Copy(out, io.NewSectionReader(file, 0, size)); err != nil {
		return nil, err
	}
	if err := o.give(out); err != nil {
		return nil, err
	}
	again, err := o.folder.Open(name)
	if err != nil {
		return nil, err
	}
	o.own = append(o.own, again)
	return again, nil
}

// copyable returns the size of a file that can be copied.
func copyable(file *os.File) (int64, error) {
	st, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxCopy {
		return 0, fmt.Errorf("it is %v of %d bytes, and only regular files up to %d are copied", st.Mode(), st.Size(), int64(maxCopy))
	}
	return st.Size(), nil
}

// maxCopy bounds what is copied into memory: a kernel or an initrd, in bytes.
const maxCopy = 4 << 30

// sealedCopy copies a file to memory that nobody can change any more.
func sealedCopy(file *os.File) (*os.File, error) {
	size, err := copyable(file)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(filepath.Base(file.Name()), unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	sealed := os.NewFile(uintptr(fd), file.Name())
	_, err = io.Copy(sealed, io.NewSectionReader(file, 0, size))
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
	}
	if err != nil {
		sealed.Close()
		return nil, err
	}
	return sealed, nil
}
