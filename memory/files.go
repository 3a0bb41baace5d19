package memory

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/interrupted"
)

const (
	// maxFiles is how many files an image may have beside its own, maxFileSize the bytes
	// of one.
	maxFiles    = 256
	maxFileSize = 1 << 60
	maxFilePath = 4096

	filePrefix = "file-"
	// fileBlock is what a file's sum is made of, in bytes.
	fileBlock = 64 << 10
)

// File is a file that belongs to what was saved and would not outlive it elsewhere: a disk
// that was made in a pod.
type File struct {
	// Name is its name in the image's folder: file-0, file-1 and so on, in their order.
	Name string `json:"name"`
	// Path is where it was, and is to be put back.
	Path string `json:"path"`
	Size uint64 `json:"size"`
	// DataBytes is how much of it was written, not counting holes.
	DataBytes uint64 `json:"dataBytes"`
	// Sum is that of all blocks of 64 KiB that are not all zeros, each after its number,
	// 64 bits, little-endian. So it is the same wherever a filesystem has holes.
	Sum Sum32 `json:"sum"`
}

func fileName(i int) string { return filePrefix + strconv.Itoa(i) }

// isFileName says whether an image may have a file of this name.
func isFileName(name string) bool {
	number, found := strings.CutPrefix(name, filePrefix)
	i, err := strconv.Atoi(number)
	return found && err == nil && i >= 0 && i < maxFiles && name == fileName(i)
}

func (m *Manifest) validateFiles(fault faultFunc) error {
	if len(m.Files) > maxFiles {
		return fault("files", "%d of them: an image has at most %d", len(m.Files), maxFiles)
	}
	paths := make(map[string]bool, len(m.Files))
	for i, f := range m.Files {
		field := fmt.Sprintf("files[%d].", i)
		switch {
		case f.Name != fileName(i):
			return fault(field+"name", "%.80q is not %s", f.Name, fileName(i))
		case !filepath.IsAbs(f.Path) || filepath.Clean(f.Path) != f.Path || len(f.Path) > maxFilePath || strings.ContainsRune(f.Path, 0):
			return fault(field+"path", "%.80q is not a clean absolute path of at most %d bytes", f.Path, maxFilePath)
		case paths[f.Path]:
			return fault(field+"path", "%.80q is not the only one", f.Path)
		case f.Size > maxFileSize:
			return fault(field+"size", "%d is more than %d", f.Size, uint64(maxFileSize))
		case f.DataBytes > f.Size:
			return fault(field+"dataBytes", "%d is more than its size, %d", f.DataBytes, f.Size)
		}
		paths[f.Path] = true
	}
	return nil
}

// CopyFile takes a file into the image that nobody writes to meanwhile: by sharing its
// blocks where the filesystem can, else its data without its holes. It moves from's offset.
// path is where it is to be put back. The context is heeded between blocks; done gets each
// block with data.
func (w *Writer) CopyFile(ctx context.Context, from *os.File, path string, done func(bytes uint64)) error {
	if w.over {
		return os.ErrClosed
	}
	name := fileName(len(w.files))
	if len(w.files) >= maxFiles {
		return contract.Errorf("%s: more than %d files belong to it", contract.ObjectName(w.folder.path), maxFiles)
	}
	st, err := from.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return contract.Errorf("%s: not a regular file, and can't be taken into an image", contract.ObjectName(path))
	}
	if err := w.planned(name); err != nil {
		return err
	}
	to, err := w.create(name)
	if err != nil {
		return err
	}
	defer to.Close()
	f := File{Name: name, Path: path, Size: uint64(st.Size())}
	if f.Sum, f.DataBytes, err = transfer(ctx, from, to, f.Size, done); err != nil {
		return contract.Errorf("copy %s to %s: %w", contract.ObjectName(path), to.Name(), err)
	}
	if err := to.Sync(); err != nil {
		return err
	}
	w.files = append(w.files, f)
	return nil
}

// CopyOut writes one of the image's files into a fresh, empty one. Its content is right if
// there is no error: damage is a DamagedError.
func (img *Image) CopyOut(ctx context.Context, f File, to *os.File) error {
	from, err := img.openPart(f.Name, f.Size)
	if err != nil {
		return err
	}
	defer from.Close()
	sum, _, err := transfer(ctx, from, to, f.Size, func(uint64) {})
	if err != nil {
		return contract.Errorf("copy %s to %s: %w", contract.ObjectName(from.Name()), f.Path, err)
	}
	return f.check(from, sum)
}

func (f File) check(file *os.File, sum Sum32) error {
	if sum != f.Sum {
		return damagedFile(file.Name(), "the sum of its data is %v, %s says %v", sum, ManifestName, f.Sum)
	}
	return nil
}

// transfer makes an empty file one with the content of another.
func transfer(ctx context.Context, from, to *os.File, size uint64, done func(uint64)) (sum Sum32, data uint64, err error) {
	if interrupted.Retry(func() error { return unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) }) == nil {
		if st, err := to.Stat(); err != nil || uint64(st.Size()) != size {
			return 0, 0, fmt.Errorf("its size has changed from %d bytes meanwhile: %w", size, os.ErrInvalid)
		}
		return blocks(ctx, to, size, func(_ uint64, b []byte) error { done(uint64(len(b))); return nil })
	}
	if err := interrupted.Retry(func() error { return unix.Ftruncate(int(to.Fd()), int64(size)) }); err != nil {
		return 0, 0, os.NewSyscallError("ftruncate", err)
	}
	return blocks(ctx, from, size, func(off uint64, b []byte) error {
		_, err := to.WriteAt(b, int64(off))
		done(uint64(len(b)))
		return err
	})
}

// blocks calls do for each block of a file that is not all zeros, and returns the sum of
// them and their size altogether.
func blocks(ctx context.Context, f *os.File, size uint64, do func(off uint64, b []byte) error) (sum Sum32, data uint64, err error) {
	buf := make([]byte, fileBlock)
	var number [8]byte
	for off := uint64(0); ; off += fileBlock {
		if err := context.Cause(ctx); err != nil {
			return 0, 0, err
		}
		at, err := nextData(f, off, size)
		if err != nil || at >= size {
			return sum, data, err
		}
		off = at / fileBlock * fileBlock
		b := buf[:min(fileBlock, size-off)]
		if err := readFull(f, b, off); err != nil {
			return 0, 0, err
		}
		if isZero(b) {
			continue
		}
		binary.LittleEndian.PutUint64(number[:], off/fileBlock)
		sum, data = sum.add(number[:]).add(b), data+uint64(len(b))
		if err := do(off, b); err != nil {
			return 0, 0, err
		}
	}
}

// verifyFiles compares all files with their sums.
func (img *Image) verifyFiles(ctx context.Context, done func(uint64)) error {
	for _, f := range img.manifest.Files {
		file, err := img.openPart(f.Name, f.Size)
		if err != nil {
			return err
		}
		sum, _, err := blocks(ctx, file, f.Size, func(_ uint64, b []byte) error { done(uint64(len(b))); return nil })
		file.Close()
		if err != nil {
			return contract.Errorf("%s: %w", contract.ObjectName(file.Name()), err)
		}
		if err := f.check(file, sum); err != nil {
			return err
		}
	}
	return nil
}
