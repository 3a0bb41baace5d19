package memory

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vmlet/vmlet/test/faultfs"
)

// use is what goes on from an image.
func (f *faulty) use(dir string) error {
	img, err := Open(imageIn(dir))
	if err != nil {
		return err
	}
	defer img.Close()
	return img.MarkUsed("pod web")
}

// used says whether the image in a folder can't be gone on from.
func (f *faulty) used(dir string) (bool, error) {
	img, err := Open(imageIn(dir))
	if err != nil {
		return true, nil // it is none
	}
	defer img.Close()
	err = img.CheckUnused()
	if errors.As(err, new(*UsedError)) {
		return true, nil
	}
	return false, err
}

// TestMarkPowerCut: whenever the power goes after the mark, nobody goes on from the image
// again, also while it is being removed.
func TestMarkPowerCut(t *testing.T) {
	f := newFaulty(t)
	f.fs.Cut(t, faultfs.Cuts{
		Prepare: f.save,
		Do: func(dir string) error {
			if err := f.use(dir); err != nil {
				return err
			}
			f.fs.Mark("used")
			return Remove(imageIn(dir))
		},
		Check: func(dir string, s faultfs.State) error {
			used, err := f.used(dir)
			if err == nil && !used && s.Marked("used") {
				err = errors.New("a guest has gone on from it, and another can")
			}
			return err
		},
	})
}

// TestMarkFaults: who is told that the image is his has marked it, and where it failed once
// it can be tried again.
func TestMarkFaults(t *testing.T) {
	f := newFaulty(t)
	f.fs.Walk(t, faultfs.Walk{
		Prepare: f.saveBelow,
		Do:      f.use,
		Check: func(dir string, fault faultfs.Fault, err error) error {
			used, looked := f.used(dir)
			switch {
			case looked != nil:
				return looked
			case err == nil && !used:
				return errors.New("it was used, and can be used again")
			case err != nil && used && !fault.Late && fault.Times != faultfs.Forever:
				return fmt.Errorf("it was not used (%v), and is marked", err)
			}
			return nil
		},
	})
}
