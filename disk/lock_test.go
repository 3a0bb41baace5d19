package disk

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// use is what a program does with an image.
type use struct {
	write bool
	// whole: it has one lock on all of it, as cloud-hypervisor.
	whole bool
}

func (u use) lock(f *os.File) error {
	if !u.whole {
		return Lock(f, u.write)
	}
	l := unix.Flock_t{Type: unix.F_RDLCK}
	if u.write {
		l.Type = unix.F_WRLCK
	}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
}

func TestLock(t *testing.T) {
	tests := []struct {
		name        string
		first, next use
		inUse       bool
	}{
		{"two readers", use{}, use{}, false},
		{"two writers", use{write: true}, use{write: true}, true},
		{"a reader after a writer", use{write: true}, use{}, true},
		{"a writer after a reader", use{}, use{write: true}, true},
		{"two writers, the first locks the whole", use{write: true, whole: true}, use{write: true}, true},
		{"a reader after such a writer", use{write: true, whole: true}, use{}, true},
		{"a reader after such a reader", use{whole: true}, use{}, false},
		{"a writer after such a reader", use{whole: true}, use{write: true}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			first := file(t, make([]byte, 4096))
			next := reopened(t, first)
			if err := tt.first.lock(first); err != nil {
				t.Fatal(err)
			}
			if err := tt.next.lock(next); errors.Is(err, ErrInUse) != tt.inUse {
				t.Errorf("%v, want in use: %v", err, tt.inUse)
			}
		})
	}
}

// Whoever has the description has its locks.
func TestLockIsTheDescriptions(t *testing.T) {
	f := file(t, make([]byte, 4096))
	if err := errors.Join(Lock(f, true), Lock(f, true)); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	inherited := os.NewFile(uintptr(fd), "inherited")
	other := reopened(t, f)
	f.Close()
	if err := Lock(other, true); !errors.Is(err, ErrInUse) {
		t.Errorf("%v, want that it is in use", err)
	}
	inherited.Close()
	if err := Lock(other, true); err != nil {
		t.Errorf("when all descriptors are closed: %v", err)
	}
}

func TestUnlocked(t *testing.T) {
	tests := []struct {
		name  string
		first *use // nil: nobody has it
		write bool
		inUse bool
	}{
		{"nobody", nil, true, false},
		{"a writer beside a QEMU that writes", &use{write: true}, true, true},
		{"a writer beside a QEMU that reads", &use{}, true, true},
		{"a writer beside a whole writer", &use{write: true, whole: true}, true, true},
		{"a reader beside a whole writer", &use{write: true, whole: true}, false, true},
		{"a reader beside a whole reader", &use{whole: true}, false, false},
		{"a reader beside a QEMU that reads", &use{}, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := file(t, make([]byte, 4096))
			if tt.first != nil {
				if err := tt.first.lock(f); err != nil {
					t.Fatal(err)
				}
			}
			if err := Unlocked(reopened(t, f), tt.write); errors.Is(err, ErrInUse) != tt.inUse {
				t.Errorf("%v, want in use: %v", err, tt.inUse)
			}
		})
	}
}

// The real QEMU heeds these locks, and gives its own in the same way.
func TestLockAgainstQEMU(t *testing.T) {
	qemuIO, err := exec.LookPath("qemu-io")
	if err != nil {
		t.Skip(err)
	}
	f := file(t, make([]byte, 1<<20))
	write := func() error { return exec.Command(qemuIO, "-f", "raw", "-c", "write 0 512", f.Name()).Run() }
	if err := write(); err != nil {
		t.Fatalf("nobody has it: %v", err)
	}
	if err := Lock(f, true); err != nil {
		t.Fatal(err)
	}
	if write() == nil {
		t.Error("QEMU writes to an image that is locked")
	}
}

func reopened(t *testing.T, f *os.File) *os.File {
	t.Helper()
	again, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	return again
}
