// Package disk looks into disk images before a VMM does: what format an image really has,
// which other files it names, and whether it is still the disk that a memory image was saved
// with. It must not know VMs.
//
// Everything works on a file that the caller has opened, never on a path, so that what was
// examined is what is used. Headers are taken for hostile: reads and memory are bounded and
// nothing that they say is followed. The package needs little more than the standard library
// and x/sys, and little memory, so that the shim can link it.
package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/interrupted"
)

// Format is an image's format, by the name of QEMU's block driver.
type Format string

// Formats that Probe tells apart. Only raw and qcow2 can be given to a VM; the others are known so that they aren't taken for raw.
const (
	Raw       Format = "raw"
	QCOW2     Format = "qcow2"
	QCOW      Format = "qcow"
	QED       Format = "qed"
	VMDK      Format = "vmdk"
	VDI       Format = "vdi"
	VHDX      Format = "vhdx"
	VPC       Format = "vpc"
	Parallels Format = "parallels"
	Bochs     Format = "bochs"
	LUKS      Format = "luks"
)

// Info is what Probe found.
type Info struct {
	Format Format
	// BlockDevice is true for a block device, false for a regular file.
	BlockDevice bool
	// FileSize is the length of the file or device, in bytes.
	FileSize int64
	// VirtualSize is the size of the disk that a guest would see, in bytes; 0 for formats other than raw and qcow2.
	VirtualSize int64
	// Header has what a qcow2's header says; nil for other formats.
	Header *Header
	// Foreign says what a regular file of format raw is that is surely no disk; nil: it may be one. A guest may have made its disk
	// so: only images that no guest has written are to be refused for it.
	Foreign *Foreign
}

// Probe examines an image. The file must be open for reading, without O_DIRECT; its offset isn't used or moved. A qcow2 whose
// header breaks the format's rules is a *HeaderError; what is well-formed but not wanted is left to Check.
func Probe(f *os.File) (Info, error) {
	info, _, err := stat(f)
	if err != nil {
		return Info{}, err
	}
	head := make([]byte, ForeignLength)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Info{}, fmt.Errorf("reading the image's head: %w", err)
	}
	info.Format = Recognise(head[:n])
	switch info.Format {
	case Raw:
		info.VirtualSize = info.FileSize
		if !info.BlockDevice {
			info.Foreign = RecogniseForeign(head[:n])
		}
	case QCOW2:
		h, err := readHeader(io.NewSectionReader(f, 0, info.FileSize))
		if err != nil {
			return Info{}, err
		}
		info.Header = h
		info.VirtualSize = h.VirtualSize
	}
	return info, nil
}

// stat fills in what the file system knows.
func stat(f *os.File) (Info, unix.Stat_t, error) {
	var st unix.Stat_t
	var info Info
	err := control(f, func(fd int) error {
		if err := interrupted.Retry(func() error { return unix.Fstat(fd, &st) }); err != nil {
			return err
		}
		info.FileSize = st.Size
		if st.Mode&unix.S_IFMT == unix.S_IFBLK {
			info.BlockDevice = true
			var err error
			info.FileSize, err = deviceSize(fd)
			return err
		}
		return nil
	})
	if err != nil {
		return Info{}, st, fmt.Errorf("asking for the image's size: %w", err)
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFBLK {
		return Info{}, st, fmt.Errorf("an image must be a regular file or a block device, and this is %s: %w", kindName(kind), fs.ErrInvalid)
	}
	return info, st, nil
}

func kindName(kind uint32) string {
	switch kind {
	case unix.S_IFDIR:
		return "a folder"
	case unix.S_IFCHR:
		return "a character device"
	case unix.S_IFIFO:
		return "a pipe"
	case unix.S_IFSOCK:
		return "a socket"
	}
	return fmt.Sprintf("of kind %#o", kind)
}

// control calls do with the descriptor, which stays open meanwhile.
func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = do(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// deviceSize is a block device's size in bytes, by BLKGETSIZE64 (linux/fs.h), which stores a 64-bit number.
func deviceSize(fd int) (int64, error) {
	var size uint64
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.BLKGETSIZE64, uintptr(unsafe.Pointer(&size))); errno != 0 {
		return 0, fmt.Errorf("BLKGETSIZE64: %w", errno)
	}
	if size > 1<<63-1 {
		return 0, fmt.Errorf("BLKGETSIZE64: impossible size %d", size)
	}
	return int64(size), nil
}

// Recognise tells the format from the head of an image. It needs less of it than RecogniseForeign. What has no known signature
// is raw.
func Recognise(head []byte) Format {
	if bytes.HasPrefix(head, []byte(qcowMagic)) {
		if len(head) >= 8 && binary.BigEndian.Uint32(head[4:]) == 1 {
			return QCOW
		}
		return QCOW2
	}
	for _, s := range signatures() {
		if len(head) >= s.offset && bytes.HasPrefix(head[s.offset:], []byte(s.bytes)) {
			return s.format
		}
	}
	return Raw
}

type signature struct {
	format Format
	offset int
	bytes  string
}

// signatures lists what images of other formats begin with, from their specifications and the probe functions of QEMU's block
// drivers. The two of VMDK besides its text descriptor are those of its sparse extents.
func signatures() []signature {
	return []signature{
		{QED, 0, "QED\x00"},
		{VMDK, 0, "KDMV"},
		{VMDK, 0, "COWD"},
		{VMDK, 0, "# Disk DescriptorFile"},
		{VHDX, 0, "vhdxfile"},
		{VPC, 0, "conectix"},
		{Parallels, 0, "WithoutFreeSpace"},
		{Parallels, 0, "WithouFreSpacExt"},
		{Bochs, 0, "Bochs Virtual HD Image"},
		{LUKS, 0, "LUKS\xba\xbe"},
		{VDI, 64, "\x7f\x10\xda\xbe"},
	}
}
