package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
)

const (
	// UsedName is the file by which an image says that a guest has gone on from it.
	UsedName = "used"
	// maxUse bounds its content, in bytes.
	maxUse = 4 << 10
)

// Use is the content of UsedName.
type Use struct {
	Time time.Time `json:"time"`
	// By is who went on from the image.
	By string `json:"by"`
}

// UsedError says that a guest has gone on from an image before: its disks are newer than
// the image's memory now.
type UsedError struct {
	Path string
	Use  Use // zero: unknown
}

func (e *UsedError) Error() string {
	how := ""
	if !e.Use.Time.IsZero() {
		how = fmt.Sprintf(", at %s by %.200q", e.Use.Time.UTC().Format(time.RFC3339), e.Use.By)
	}
	return fmt.Sprintf("%s: a guest has gone on from this memory image before%s: its disks may have changed since, and the image is never restored a second time", e.Path, how)
}

// Faults are the error in parts (contract.FaultsOf).
func (e *UsedError) Faults() []contract.Fault { return about(e.Path, e) }

// CheckUnused returns a UsedError if a guest has gone on from the image.
func (img *Image) CheckUnused() error {
	f, err := img.folder.open(UsedName, unix.O_RDONLY)
	var damaged *DamagedError // something else has that name
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.As(err, &damaged):
		return &UsedError{Path: img.folder.path}
	case err != nil:
		return err
	}
	defer f.Close()
	used := &UsedError{Path: img.folder.path}
	if b, err := io.ReadAll(io.LimitReader(f, maxUse)); err == nil && json.Unmarshal(b, &used.Use) != nil {
		used.Use = Use{}
	}
	return used
}

// MarkUsed marks the image, durably, as one that a guest goes on from, and returns a
// UsedError if it is marked: of several callers, on whatever machines, one succeeds. After
// another error it isn't marked, as far as that could be undone.
func (img *Image) MarkUsed(by string) error {
	content, err := json.Marshal(Use{Time: time.Now().UTC(), By: by[:min(len(by), maxUse/8)]})
	if err != nil {
		return err
	}
	f, err := img.folder.open(UsedName, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	switch {
	case errors.Is(err, unix.EEXIST):
		if err := img.CheckUnused(); err != nil {
			return err
		}
		return &UsedError{Path: img.folder.path} // and is being removed
	case err != nil:
		return img.notMarked(err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = img.folder.dir.Sync()
	}
	if err == nil {
		err = img.stillThere()
	}
	if err == nil || errors.As(err, new(*UsedError)) {
		return err
	}
	return img.notMarked(errors.Join(err, img.folder.remove(UsedName)))
}

func (img *Image) notMarked(err error) error {
	return contract.Errorf("%s: the image can't be marked as used, without which it is not restored: %w", contract.ObjectName(img.folder.path), err)
}

// stillThere returns a UsedError if the image is being removed by its user: the
// manifest goes before the mark. Locks keep the two apart where the filesystem has them.
func (img *Image) stillThere() error {
	f, err := img.folder.open(ManifestName, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		return &UsedError{Path: img.folder.path}
	}
	if err != nil {
		return err
	}
	_ = f.Close() // nothing was written
	return nil
}
