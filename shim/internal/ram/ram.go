// Package ram makes the file that is a guest's RAM, and decides where its pages come from: huge pages,
// the host's NUMA nodes. It must know neither launches nor VMMs. Start reading at Make.
package ram

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/internal/rundir"
)

// Make makes the file that is the guest's RAM: all hole, of mode 0600, the VMM's user's. free gives it
// back, the first time. After an error there is no file.
func Make(m plan.Memory, user *plan.User) (_ *os.File, free func() error, err error) {
	dir, err := rundir.Open(filepath.Dir(m.Path))
	if err != nil {
		return nil, nil, fmt.Errorf("guest RAM: %w", err)
	}
	name := filepath.Base(m.Path)
	f, err := dir.OpenFile(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, unix.EEXIST) {
		err = fmt.Errorf("%w: it is left over, or another VM's: remove it if no process has it open", err)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("guest RAM: %w", err), dir.Close())
	}
	free = sync.OnceValue(func() error { return errors.Join(dir.Remove(name), f.Close(), dir.Close()) })
	if err := prepare(f, m, user); err != nil {
		return nil, nil, errors.Join(err, free())
	}
	return f, free, nil
}

// prepare gives the new file its size, its owner and where its pages come from.
func prepare(f *os.File, m plan.Memory, user *plan.User) error {
	if err := checkPages(f, m); err != nil {
		return err
	}
	if err := unix.Ftruncate(int(f.Fd()), int64(m.Size)); err != nil {
		return contract.Errorf("guest RAM %s: make it %d bytes long: %w", contract.ObjectName(m.Path), m.Size, err)
	}
	if user != nil {
		if err := f.Chown(int(user.UID), int(user.GID)); err != nil {
			return fmt.Errorf("guest RAM: %w", err)
		}
	}
	if err := bind(f, m); err != nil || m.PageSize == 0 {
		return err
	}
	return reserveHuge(f, m)
}

// invalid is about a field of the specification.
func invalid(field, format string, args ...any) error {
	return shim.NewError(shim.CodeInvalid, field, contract.Errorf(format, args...))
}

// checkPages sees that the file is where pages of the right size come from.
func checkPages(f *os.File, m plan.Memory) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return contract.Errorf("guest RAM %s: fstatfs: %w", contract.ObjectName(m.Path), err)
	}
	huge := int64(fs.Type) == unix.HUGETLBFS_MAGIC
	switch {
	case m.PageSize == 0 && !huge:
		return nil
	case m.PageSize == 0:
		return invalid("memory.hugePages", "%s is on a hugetlbfs, and ordinary pages were asked for", m.Path)
	case !huge:
		return invalid("memory.hugePages", "%s is not on a hugetlbfs", m.Path)
	case uint64(fs.Bsize) != m.PageSize:
		return invalid("memory.hugePages", "%s is on a hugetlbfs with pages of %d bytes, not %d", m.Path, fs.Bsize, m.PageSize)
	case m.Size%m.PageSize != 0:
		return invalid("memory.size", "%d bytes are not a multiple of the huge page size, %d", m.Size, m.PageSize)
	}
	return nil
}

// reserveHuge makes the kernel set all pages aside: a shared mapping does that,
// and the reservation stays with the file (Documentation/mm/hugetlbfs_reserv).
// Without it the VMM would end by SIGBUS some time later.
func reserveHuge(f *os.File, m plan.Memory) error {
	b, err := unix.Mmap(int(f.Fd()), 0, int(m.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return invalid("memory.hugePages", "no %d free huge pages of %d bytes for this VM (%v): add to nr_hugepages, or make the VM smaller",
			m.Size/m.PageSize, m.PageSize, err)
	}
	return unix.Munmap(b)
}
