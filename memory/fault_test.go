package memory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/faultfs"
)

// faulty is guest RAM to be saved to, and filled from, a filesystem with faults.
type faulty struct {
	*testing.T
	fs   *faultfs.FS
	ram  *os.File
	file *os.File // which belongs to it
	want []byte
}

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	f := &faulty{T: t, fs: faultfs.ForTest(t), ram: newRAM(t, 2<<20+PageSize)}
	for at, text := range map[int64]string{5: "first", 1<<20 + 3*PageSize: "second", 2 << 20: "last"} {
		if _, err := f.ram.WriteAt([]byte(text), at); err != nil {
			t.Fatal(err)
		}
	}
	f.want = content(t, f.ram)
	f.file = newMemfd(t, fileBlock+7, 0)
	if _, err := f.file.WriteAt([]byte("a disk's end"), fileBlock-5); err != nil {
		t.Fatal(err)
	}
	return f
}

func imageIn(dir string) string { return filepath.Join(dir, "image") }

// save is a whole one, undone if it fails. Its steps are one after the other, so that
// the N-th operation is the same each time.
func (f *faulty) save(dir string) error {
	w, err := Create(imageIn(dir), Options{Workers: 1})
	if err != nil {
		return err
	}
	if err := f.write(w); err != nil {
		return errors.Join(err, w.Abort())
	}
	return nil
}

func (f *faulty) write(w *Writer) error {
	state, err := w.StateFile()
	if err != nil {
		return err
	}
	if _, err := io.WriteString(state, testState); err != nil {
		return err
	}
	if _, err := w.CopyMemory(f.Context(), f.ram, uint64(len(f.want)), nil); err != nil {
		return err
	}
	if err := w.CopyFile(f.Context(), f.file, "/made/disk", func(uint64) {}); err != nil {
		return err
	}
	return w.Commit(f.Context(), manifestFor(uint64(len(f.want))))
}

// whole sees that there is an image with the right content; ErrNotImage: there is none.
func (f *faulty) whole(dir string) error {
	img, err := Open(imageIn(dir))
	if errors.Is(err, os.ErrNotExist) && !errors.As(err, new(*DamagedError)) {
		return ErrNotImage
	}
	if err != nil {
		return err
	}
	defer img.Close()
	if err := img.Verify(f.Context(), nil); err != nil {
		return err
	}
	if n := len(img.Manifest().Files); n != 1 {
		return fmt.Errorf("the image has %d files, want 1", n)
	}
	return errors.Join(same(img.MemoryFile(), f.want), same(img.StateFile(), []byte(testState)))
}

func same(file *os.File, want []byte) error {
	got, err := io.ReadAll(io.NewSectionReader(file, 0, int64(len(want))+1))
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s: not what was saved", file.Name())
	}
	return err
}

// TestSaveFaults: after a save that fails there is no image and, as far as the
// disk lets it, nothing at all; its error says where and why.
func TestSaveFaults(t *testing.T) {
	for _, existing := range []bool{false, true} {
		t.Run(fmt.Sprintf("existing=%t", existing), func(t *testing.T) {
			f := newFaulty(t)
			f.fs.Walk(t, faultfs.Walk{
				Prepare: func(dir string) error {
					if !existing {
						return nil
					}
					return os.Mkdir(imageIn(dir), 0o700)
				},
				Do: f.save,
				Check: func(dir string, fault faultfs.Fault, err error) error {
					if err == nil {
						return f.whole(dir)
					}
					if err := faultfs.Names(err, filepath.Base(dir), f.said(fault, err)); err != nil {
						return err
					}
					return f.nothing(dir, existing, fault, err)
				},
			})
		})
	}
}

// said is the errno that an error is to name: of a file whose making was interrupted
// the kernel, trying again, says that it exists; what was late may be found by
// something else.
func (f *faulty) said(fault faultfs.Fault, err error) unix.Errno {
	if fault.Late || errors.Is(err, unix.EEXIST) {
		return 0
	}
	return fault.Errno
}

// nothing sees that a failed save has left no image.
func (f *faulty) nothing(dir string, existing bool, fault faultfs.Fault, saved error) error {
	switch err := f.whole(dir); {
	case err == nil && fault.Times == faultfs.Forever && faultfs.Names(saved, "still is an image: remove it", 0) == nil:
		return nil // it could not be removed, which was said
	case !errors.Is(err, ErrNotImage):
		return fmt.Errorf("it failed and left an image (%v)", err)
	}
	left, err := os.ReadDir(imageIn(dir))
	switch {
	case fault.Times == faultfs.Forever, errors.Is(saved, unix.EEXIST):
		return nil // it could not be removed, or may be another's
	case fault.Late && len(left) == 0:
		return nil // a folder whose making was answered with an error
	case existing && len(left) == 0 && err == nil, !existing && errors.Is(err, os.ErrNotExist):
		return nil
	}
	return fmt.Errorf("it failed and left %v (%v)", left, err)
}

// TestSavePowerCut: whenever the power goes there is the whole image or none, and
// once the save has returned there is one.
func TestSavePowerCut(t *testing.T) {
	for _, existing := range []bool{false, true} {
		t.Run(fmt.Sprintf("existing=%t", existing), func(t *testing.T) {
			f := newFaulty(t)
			f.fs.Cut(t, faultfs.Cuts{
				Prepare: func(dir string) error {
					if !existing {
						return nil
					}
					return os.Mkdir(imageIn(dir), 0o700)
				},
				Do: func(dir string) error {
					err := f.save(dir)
					f.fs.Mark("saved")
					return err
				},
				Check: f.wholeOnce("saved"),
			})
		})
	}
}

// wholeOnce judges a state: the image, or none as long as the word was not marked.
func (f *faulty) wholeOnce(word string) func(string, faultfs.State) error {
	return func(dir string, s faultfs.State) error {
		err := f.whole(dir)
		if errors.Is(err, ErrNotImage) && !s.Marked(word) {
			return nil
		}
		return err
	}
}

// goneOnce judges a state: the image, and none once the word was marked.
func (f *faulty) goneOnce(word string) func(string, faultfs.State) error {
	return func(dir string, s faultfs.State) error {
		err := f.whole(dir)
		switch {
		case errors.Is(err, ErrNotImage):
			return nil
		case err == nil && s.Marked(word):
			return errors.New("it is there again")
		}
		return err
	}
}

// TestFailedSavePowerCut: a save that fails when the manifest has its name already
// does not come back when the power goes; the guest has gone on meanwhile.
func TestFailedSavePowerCut(t *testing.T) {
	f := newFaulty(t)
	f.fs.Cut(t, faultfs.Cuts{
		Do: func(dir string) error {
			// The first sync of the folder is before the rename.
			f.fs.Arm(faultfs.Fault{Op: faultfs.OpFsyncdir, Nth: 2, Errno: unix.EIO})
			err := f.save(dir)
			if f.fs.Disarm() != 1 || !errors.Is(err, unix.EIO) {
				return fmt.Errorf("it did not fail: %w", err)
			}
			f.fs.Mark("failed")
			return nil
		},
		Check: f.goneOnce("failed"),
	})
}

// TestRemovePowerCut: an image that is removed is whole or gone.
func TestRemovePowerCut(t *testing.T) {
	f := newFaulty(t)
	f.fs.Cut(t, faultfs.Cuts{
		Prepare: f.save,
		Do: func(dir string) error {
			err := Remove(imageIn(dir))
			f.fs.Mark("removed")
			return err
		},
		Check: f.goneOnce("removed"),
	})
}

// TestRemoveFaults: a removal that fails leaves the whole image or none, and can
// be repeated.
func TestRemoveFaults(t *testing.T) {
	f := newFaulty(t)
	f.fs.Walk(t, faultfs.Walk{
		Prepare: f.saveBelow,
		Do:      func(dir string) error { return Remove(imageIn(dir)) },
		Check: func(dir string, fault faultfs.Fault, err error) error {
			whole := f.whole(dir)
			switch {
			case err == nil && !errors.Is(whole, ErrNotImage):
				return fmt.Errorf("removed, and there: %v", whole)
			case err != nil && whole != nil && !errors.Is(whole, ErrNotImage):
				return fmt.Errorf("half removed: %v", whole)
			}
			if err == nil {
				return nil
			}
			if again := Remove(imageIn(dir)); again != nil && !errors.Is(again, os.ErrNotExist) {
				return fmt.Errorf("a second time: %v", again)
			}
			return faultfs.Names(err, filepath.Base(dir), f.said(fault, err))
		},
	})
}

// saveBelow makes an image where no fault is.
func (f *faulty) saveBelow(dir string) error {
	return f.save(filepath.Join(f.fs.Backing(), filepath.Base(dir)))
}

// TestReadFaults: a read that goes wrong is an error that says where, and never
// memory of another content.
func TestReadFaults(t *testing.T) {
	f := newFaulty(t)
	var filled []byte
	f.fs.Walk(t, faultfs.Walk{
		Prepare: f.saveBelow,
		Flip:    true,
		Do: func(dir string) error {
			filled = nil
			img, err := Open(imageIn(dir))
			if err != nil {
				return err
			}
			defer img.Close()
			lock, err := img.LockShared()
			if err != nil {
				return err
			}
			defer lock.Unlock()
			if err := img.VerifyState(f.Context()); err != nil {
				return err
			}
			ram := newRAM(f, uint64(len(f.want)))
			defer ram.Close()
			if err := img.Fill(f.Context(), ram, 0, nil); err != nil {
				return err
			}
			filled = content(f, ram)
			return img.Verify(f.Context(), nil)
		},
		Check: func(dir string, fault faultfs.Fault, err error) error {
			if filled != nil && !bytes.Equal(filled, f.want) {
				return errors.New("it was filled with something else")
			}
			if err != nil {
				return faultfs.Names(err, filepath.Base(dir), f.said(fault, err))
			}
			return nil
		},
	})
}
