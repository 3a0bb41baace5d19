package faultfs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/test/faultfs"
)

// Each kind of operation fails at the place it is told to, and only there.
func TestFaults(t *testing.T) {
	f := faultfs.ForTest(t)
	path := func(name string) string { return filepath.Join(f.Path(), name) }
	open := func(name string) *os.File {
		file, err := os.OpenFile(path(name), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	there := open("there")
	defer there.Close()
	if _, err := there.WriteString("content"); err != nil {
		t.Fatal(err)
	}
	folder, err := os.Open(f.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if err := errors.Join(os.Mkdir(path("sub"), 0o700), os.Symlink("there", path("pointer"))); err != nil {
		t.Fatal(err)
	}
	for op, do := range map[faultfs.Op]func() error{
		faultfs.OpLookup:   func() error { _, err := os.Lstat(path("there")); return err },
		faultfs.OpGetattr:  func() error { _, err := there.Stat(); return err },
		faultfs.OpOpen:     func() error { g, err := os.Open(path("there")); return errors.Join(err, closed(g)) },
		faultfs.OpOpendir:  func() error { g, err := os.Open(f.Path()); return errors.Join(err, closed(g)) },
		faultfs.OpReaddir:  func() error { _, err := folder.Readdirnames(1); return err },
		faultfs.OpRead:     func() error { _, err := os.ReadFile(path("there")); return err },
		faultfs.OpLseek:    func() error { _, err := there.Seek(0, 3); return err }, // SEEK_DATA
		faultfs.OpStatfs:   func() error { var st syscall.Statfs_t; return syscall.Statfs(f.Path(), &st) },
		faultfs.OpFlush:    func() error { g, err := os.Open(path("there")); return errors.Join(err, closed(g)) },
		faultfs.OpReadlink: func() error { _, err := os.Readlink(path("pointer")); return err },
		faultfs.OpCreate:   func() error { g, err := os.Create(path("new")); return errors.Join(err, closed(g)) },
		faultfs.OpMkdir:    func() error { return os.Mkdir(path("folder"), 0o700) },
		faultfs.OpUnlink:   func() error { return syscall.Unlink(path("there")) },
		faultfs.OpRmdir:    func() error { return syscall.Rmdir(path("sub")) },
		faultfs.OpRename:   func() error { return os.Rename(path("there"), path("elsewhere")) },
		faultfs.OpLink:     func() error { return os.Link(path("there"), path("link")) },
		faultfs.OpWrite:    func() error { _, err := there.WriteAt([]byte("x"), 3); return err },
		faultfs.OpTruncate: func() error { return there.Truncate(3) },
		faultfs.OpSetattr:  func() error { return there.Chmod(0o640) },
		faultfs.OpAllocate: func() error { return syscall.Fallocate(int(there.Fd()), 0, 0, 4096) },
		faultfs.OpSetxattr: func() error { return syscall.Setxattr(path("there"), "user.a", []byte("b"), 0) },
		faultfs.OpFsync:    func() error { return there.Sync() },
		faultfs.OpFsyncdir: func() error { return folder.Sync() },
	} {
		t.Run(string(op), func(t *testing.T) {
			f.Arm(faultfs.Fault{Op: op, Errno: syscall.EDQUOT, Times: faultfs.Forever}) // the kernel tries some again
			err := do()
			if hits := f.Disarm(); hits == 0 || !errors.Is(err, syscall.EDQUOT) {
				t.Errorf("%v, befell %d operations; there were %v", err, hits, f.Counts())
			}
		})
	}
	if names, err := os.ReadDir(f.Backing()); err != nil || len(names) != 3 {
		t.Errorf("what failed was done: %v, %v", names, err)
	}
	if b, err := os.ReadFile(path("there")); string(b) != "content" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

func closed(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

func TestNthNamedLateShort(t *testing.T) {
	f := faultfs.ForTest(t)
	path := func(name string) string { return filepath.Join(f.Path(), name) }
	f.Arm(faultfs.Fault{Op: faultfs.OpMkdir, Nth: 2, Times: 2, Errno: syscall.EIO})
	var failed []bool
	for i := range 5 {
		failed = append(failed, os.Mkdir(path(fmt.Sprint(i)), 0o700) != nil)
	}
	if !slices.Equal(failed, []bool{false, true, true, false, false}) {
		t.Errorf("the second and third: %v", failed)
	}
	f.Arm(faultfs.Fault{Op: faultfs.OpChange, Name: "mine", Errno: syscall.EIO, Late: true})
	if err := os.Mkdir(path("yours"), 0o700); err != nil {
		t.Error(err)
	}
	if err := os.Mkdir(path("mine"), 0o700); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	if _, err := os.Stat(path("mine")); err != nil {
		t.Errorf("late, and not done: %v", err)
	}
	file, err := os.Create(path("file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f.Arm(faultfs.Fault{Op: faultfs.OpWrite, Short: true})
	if n, err := syscall.Write(int(file.Fd()), bytes.Repeat([]byte("x"), 100)); n != 50 || err != nil {
		t.Errorf("a short write: %d, %v", n, err)
	}
	f.Arm(faultfs.Fault{Op: faultfs.OpRead, Flip: true, Times: faultfs.Forever})
	b, err := os.ReadFile(path("file"))
	if want := strings.Repeat("x", 25) + "h" + strings.Repeat("x", 24); string(b) != want || err != nil {
		t.Errorf("a flipped bit: %q, %v", b, err)
	}
}

// A disk that hangs holds its caller until it goes on.
func TestWait(t *testing.T) {
	f := faultfs.ForTest(t)
	reached, goOn := make(chan struct{}), make(chan struct{})
	f.Arm(faultfs.Fault{Op: faultfs.OpMkdir, Wait: func(context.Context) { close(reached); <-goOn }})
	done := make(chan error)
	go func() { done <- os.Mkdir(filepath.Join(f.Path(), "a"), 0o700) }()
	<-reached
	select {
	case err := <-done:
		t.Fatal("it has not waited", err)
	default:
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The states of a replacement by write, fsync, rename, fsync of the folder, and of
// ones that leave something out: the sloppy ones lose data in some, the right one in none.
func TestCutsTellRightFromWrong(t *testing.T) {
	type step func(dir string) error
	write := func(dir string) error { return os.WriteFile(filepath.Join(dir, "temp"), []byte("new content"), 0o600) }
	sync := func(name string) step {
		return func(dir string) error {
			g, err := os.Open(filepath.Join(dir, name))
			return errors.Join(err, g.Sync(), g.Close())
		}
	}
	rename := func(dir string) error { return os.Rename(filepath.Join(dir, "temp"), filepath.Join(dir, "file")) }
	inPlace := func(dir string) error { return os.WriteFile(filepath.Join(dir, "file"), []byte("new content"), 0o600) }
	for name, test := range map[string]struct {
		steps []step
		want  []string
	}{
		"right":              {[]step{write, sync("temp"), rename, sync(".")}, []string{"new content", "old content"}},
		"without fsync":      {[]step{write, rename, sync(".")}, []string{"", "new content", "old content"}},
		"in place":           {[]step{inPlace, sync("file")}, []string{"", "new content", "old content"}},
		"only to be renamed": {[]step{write, sync("temp"), rename}, []string{"new content", "old content"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := faultfs.ForTest(t)
			seen, lastly := make(map[string]int), make(map[string]int)
			f.Cut(t, faultfs.Cuts{
				Prepare: func(dir string) error { return os.WriteFile(filepath.Join(dir, "file"), []byte("old content"), 0o600) },
				Do: func(dir string) error {
					for _, s := range test.steps {
						if err := s(dir); err != nil {
							return err
						}
					}
					f.Mark("over")
					return nil
				},
				Check: func(dir string, s faultfs.State) error {
					b, err := os.ReadFile(filepath.Join(dir, "file"))
					seen[string(b)]++
					if s.Marked("over") {
						lastly[string(b)]++
					}
					return err
				},
			})
			if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, test.want) {
				t.Errorf("there was %q, want %q", got, test.want)
			}
			if durable := len(lastly) == 1; durable != (name == "right" || name == "in place") {
				t.Errorf("at the end there was %v", lastly)
			}
		})
	}
}

// Folders and files below new folders are as durable as all that leads to them.
func TestCutsOfFolders(t *testing.T) {
	f := faultfs.ForTest(t)
	states := f.Cut(t, faultfs.Cuts{
		Do: func(dir string) error {
			sub := filepath.Join(dir, "sub")
			if err := os.Mkdir(sub, 0o700); err != nil {
				return err
			}
			g, err := os.Create(filepath.Join(sub, "file"))
			if err != nil {
				return err
			}
			_, err = g.WriteAt(bytes.Repeat([]byte("x"), 4096), 8192)
			d, err2 := os.Open(sub)
			err = errors.Join(err, err2, g.Sync(), g.Close(), d.Sync(), d.Close())
			f.Mark("inside")
			root, err2 := os.Open(dir)
			err = errors.Join(err, err2, root.Sync(), root.Close())
			f.Mark("all")
			return err
		},
		Check: func(dir string, s faultfs.State) error {
			_, err := os.Stat(filepath.Join(dir, "sub"))
			switch {
			case err != nil && s.Marked("all"):
				return err
			case err != nil:
				return nil
			}
			g, err := os.Open(filepath.Join(dir, "sub", "file"))
			if !s.Marked("inside") && errors.Is(err, os.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			defer g.Close()
			b, err := io.ReadAll(g)
			if s.Marked("inside") && (len(b) != 12288 || b[0] != 0 || b[12287] != 'x') {
				return fmt.Errorf("%d bytes", len(b))
			}
			return err
		},
	})
	if states < 10 {
		t.Errorf("only %d states", states)
	}
}
