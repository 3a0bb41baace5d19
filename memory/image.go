package memory

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
)

// Image is an image that is there, open for reading. Its methods may be used
// concurrently, until Close.
type Image struct {
	folder   *folder
	manifest *Manifest
	memory   *os.File // nil: layout stream
	state    *os.File
}

// Open reads an image's manifest and sees that its files are there, regular and
// of the right size; their content is not read, see Verify. The errors wrap
// ErrNotImage or ErrUnfinished, or are FormatErrors, DamagedErrors or the
// system's.
func Open(dir string) (*Image, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return openImage(nil, dir)
}

// OpenIn is Open of a folder in an open one, which may be open by O_PATH alone and must stay open
// until Close. Errors name the folder by its name there.
func OpenIn(parent *os.File, name string) (*Image, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	return openImage(parent, name)
}

func openImage(parent *os.File, dir string) (*Image, error) {
	d, err := openFolderIn(parent, dir)
	if err != nil {
		return nil, err
	}
	img := &Image{folder: d}
	if err := img.load(); err != nil {
		img.Close()
		return nil, err
	}
	return img, nil
}

func (img *Image) load() error {
	f, err := img.folder.open(ManifestName, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		return img.folder.noManifest()
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if img.manifest, err = ReadManifest(f, f.Name()); err != nil {
		return err
	}
	if img.manifest.Layout == LayoutRaw {
		if img.memory, err = img.openPart(MemoryName, img.manifest.MemorySize); err != nil {
			return err
		}
	}
	if img.state, err = img.openPart(StateName, img.manifest.StateSize); err != nil {
		return err
	}
	for _, file := range img.manifest.Files {
		f, err := img.openPart(file.Name, file.Size)
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}

// openPart opens a file that must have just this size.
func (img *Image) openPart(name string, size uint64) (*os.File, error) {
	f, err := img.folder.open(name, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		return nil, &DamagedError{img.folder.join(name), -1, -1, "missing", err}
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && uint64(st.Size()) != size {
		err = damagedFile(f.Name(), "it has %d bytes, %s says %d", st.Size(), ManifestName, size)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Path returns the folder's absolute path, or its name in the folder that OpenIn was given.
func (img *Image) Path() string { return img.folder.path }

// Manifest returns the manifest, which is not to be changed.
func (img *Image) Manifest() *Manifest { return img.manifest }

// MemoryFile returns the memory file, open for reading only; nil if the image's
// layout is stream. It belongs to the Image.
func (img *Image) MemoryFile() *os.File { return img.memory }

// StateFile returns the state file, open for reading only. It belongs to the
// Image, which never moves its offset: anyone who passes it to a VMM reads from 0.
func (img *Image) StateFile() *os.File { return img.state }

// LockShared locks the image's folder, see LockShared. The lock outlives Close.
func (img *Image) LockShared() (*Lock, error) { return img.folder.lockShared() }

// Close releases the files.
func (img *Image) Close() error {
	var errs []error
	for _, f := range []*os.File{img.memory, img.state, img.folder.dir} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// folderKind is what a folder's files make it.
type folderKind int

const (
	kindOther folderKind = iota
	kindImage
	kindUnfinished
)

// kindOf tells by the names in a folder.
func kindOf(names []string) folderKind {
	switch {
	case slices.Contains(names, ManifestName):
		return kindImage
	case len(names) > 0 && !slices.ContainsFunc(names, func(n string) bool { return !isPart(n) }):
		return kindUnfinished
	}
	return kindOther
}

// isPart says whether a file of this name may be part of an image, beside its manifest.
func isPart(name string) bool {
	return slices.Contains([]string{MemoryName, StateName, manifestTemp, UsedName}, name) || isFileName(name)
}

// noManifest says why a folder is no image.
func (d *folder) noManifest() error {
	names, err := d.names()
	if err != nil {
		return err
	}
	if kindOf(names) == kindUnfinished {
		return contract.Errorf("%s: %w: %w: it has %s but no %s", contract.ObjectName(d.path), ErrNotImage, ErrUnfinished, strings.Join(names, ", "), ManifestName)
	}
	return contract.Errorf("%s: %w: it has no %s", contract.ObjectName(d.path), ErrNotImage, ManifestName)
}

// Remove deletes an image, or the remains of an unfinished save, and its
// folder: the manifest first, so that no half of it looks like an image. It
// refuses, wrapping ErrInUse, an image that is being written or run from, and
// one whose filesystem can't tell unless the image is marked as used. A folder that is a mount point, or has other
// files beside the image's, stays.
func Remove(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	d, err := openFolder(dir)
	if err != nil {
		return err
	}
	defer d.dir.Close()
	return d.removeAll()
}

func (d *folder) removeAll() error {
	names, err := d.names()
	if err != nil {
		return err
	}
	err = lock(d.dir, unix.LOCK_EX)
	if used := slices.Contains(names, UsedName); err != nil && !(used && errors.Is(err, errors.ErrUnsupported)) {
		return err
	}
	if names, err = d.names(); err != nil { // a save may have been under way before
		return err
	}
	if kindOf(names) == kindOther && len(names) > 0 {
		return d.noManifest()
	}
	if err := d.removeManifest(); err != nil {
		return err
	}
	if err := d.dir.Sync(); err != nil {
		return err
	}
	for _, name := range names {
		if isPart(name) {
			if err := d.remove(name); err != nil {
				return err
			}
		}
	}
	if err := d.rmdir(); !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EBUSY) {
		return err
	}
	return d.dir.Sync()
}
