package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/internal/atomicfile"
)

// Files beside the disk, while it is made.
const (
	madeName  = ".vmlet-import"          // the disk, or what is downloaded
	rawName   = ".vmlet-import.raw"      // the disk, where what was downloaded is converted
	stateName = ".vmlet-import.json"     // how far the download is
	scratch   = ".vmlet-import.download" // what is downloaded, beside a device
)

const (
	mebibyte = 1 << 20
	// overhead is what a filesystem is given for itself, in thousandths of its volume: as where
	// VMs' disks grow.
	overhead = 55
	// piece is the least that is left out where it is zero, in bytes.
	piece  = 64 << 10
	sector = 512
)

// target is where the disk is made.
type target struct {
	folder string
	// file is the disk under its first name, or the device; nil until begin.
	file *os.File
	// room is the most bytes that a disk may have, size those that it gets.
	room, size int64
}

func (i *Importer) open() (*target, error) {
	if i.Device != "" {
		return openDevice(i.Device)
	}
	if err := i.clean(); err != nil {
		return nil, err
	}
	folder, err := os.Open(i.Folder)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	free, err := disk.Room(folder)
	if err != nil {
		return nil, err
	}
	var kept unix.Stat_t // what an earlier run has downloaded is room, too
	if unix.Lstat(filepath.Join(i.Folder, madeName), &kept) == nil {
		free += kept.Blocks * sector
	}
	t := &target{folder: i.Folder, room: min(i.Size, free)}
	t.size = min(i.Size/1000*(1000-overhead), free)
	t.size -= t.size % mebibyte
	if t.size <= 0 {
		return nil, fmt.Errorf("the claim has %d bytes, and no room for a disk: ask for a larger one", t.room)
	}
	return t, nil
}

// clean removes what earlier runs have left, but for a download that may go on.
func (i *Importer) clean() error {
	names := []string{rawName}
	if i.HTTP == nil {
		names = append(names, madeName, stateName)
	}
	return remove(i.Folder, names...)
}

// remove removes files of a folder that are there.
func remove(folder string, names ...string) error {
	for _, name := range names {
		if err := os.Remove(filepath.Join(folder, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func openDevice(path string) (*target, error) {
	f, err := os.OpenFile(path, unix.O_RDWR|unix.O_NOCTTY, 0)
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("user %d can't write the claim's device: set device_ownership_from_security_context = true in the configuration of the node's containerd or CRI-O, or use volumeMode Filesystem", os.Getuid())
	}
	if err != nil {
		return nil, err
	}
	exclusive, err := disk.Exclusively(f)
	if err != nil {
		return nil, contract.Errorf("%s: %w", contract.ObjectName(path), errors.Join(err, f.Close()))
	}
	if exclusive != nil {
		f.Close()
		f = exclusive
	}
	// What is on it is of no interest.
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil && size == 0 {
		err = contract.Errorf("%s has no room", contract.ObjectName(path))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &target{file: f, room: size, size: size}, nil
}

func (t *target) device() bool { return t.folder == "" }

// path of a file beside the disk.
func (t *target) path(name string) string { return filepath.Join(t.folder, name) }

// fits refuses a disk that is larger than the claim.
func (t *target) fits(size int64) error {
	if size > t.room {
		return fmt.Errorf("the disk has %d bytes, and the claim has room for %d: ask for a larger claim", size, t.room)
	}
	return nil
}

// begin makes the disk's file again, unless it is a device.
func (t *target) begin() error {
	if t.device() || t.file != nil {
		return nil
	}
	var err error
	t.file, err = openMade(t.path(rawName), unix.O_TRUNC)
	return err
}

// openMade opens a file that this package makes beside the disk.
func openMade(path string, flags int) (*os.File, error) {
	return os.OpenFile(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|flags, 0o660)
}

// forget has begin make the disk's file again.
func (t *target) forget() {
	if t.file != nil && !t.device() {
		t.file.Close()
		t.file = nil
	}
}

func (t *target) close() {
	if t.file != nil {
		t.file.Close()
	}
}

// finish gives the disk its size and, when it is on the disk, its name.
func (t *target) finish(preallocate bool) error {
	if t.device() {
		return t.file.Sync()
	}
	st, err := t.file.Stat()
	if err != nil {
		return err
	}
	// Whole sectors, as a guest's disk has.
	size := max(t.size, st.Size()+(-st.Size()&(sector-1)))
	if err := errors.Join(t.file.Truncate(size), t.file.Chmod(0o660)); err != nil {
		return err
	}
	if preallocate {
		if err := unix.Fallocate(int(t.file.Fd()), 0, 0, size); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("preallocating %d bytes: %w", size, err)
		}
	}
	if err := t.file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(t.file.Name(), t.path(diskName)); err != nil {
		return err
	}
	if err := remove(t.folder, madeName, rawName, stateName); err != nil {
		return err
	}
	return atomicfile.SyncFolder(t.folder)
}

// explain says what to do about a claim that is full.
func (t *target) explain(err error) error {
	full := err != nil && strings.Contains(strings.ToLower(err.Error()), unix.ENOSPC.Error()) // also qemu-img's word
	if full || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: the claim is too small. An image that has to be converted takes its own size beside the disk's: ask for a larger claim, or offer the image raw (gz, xz or zst)", err)
	}
	return err
}

// writer writes at an offset of the disk, and leaves out what is zero.
func (t *target) writer(at int64) *sparse {
	return &sparse{file: t.file, device: t.device(), at: at, room: t.room}
}

// sparse writes a file in pieces. Zeros are left out of files, where they are holes, and written to
// devices, which may have had other data.
type sparse struct {
	file   *os.File
	device bool
	// at is where the next piece goes; kept is its beginning.
	at   int64
	kept []byte
	room int64
}

func (s *sparse) Write(p []byte) (int, error) {
	if int64(len(p)) > s.room-s.at-int64(len(s.kept)) {
		return 0, tooLarge{s.room}
	}
	for rest := p; len(rest) > 0; {
		if len(s.kept) == 0 && len(rest) >= piece {
			if err := s.put(rest[:piece]); err != nil {
				return 0, err
			}
			rest = rest[piece:]
			continue
		}
		n := min(piece-len(s.kept), len(rest))
		s.kept, rest = append(s.kept, rest[:n]...), rest[n:]
		if len(s.kept) == piece {
			if err := s.flushKept(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

func (s *sparse) flushKept() error {
	err := s.put(s.kept)
	s.kept = s.kept[:0]
	return err
}

func (s *sparse) put(p []byte) error {
	if !s.device && zero(p) {
		s.at += int64(len(p))
		return nil
	}
	n, err := s.file.WriteAt(p, s.at)
	s.at += int64(n)
	return err
}

// skip goes on after a hole.
func (s *sparse) skip(n int64) error {
	if n <= 0 {
		return nil
	}
	if n > s.room-s.at-int64(len(s.kept)) {
		return tooLarge{s.room}
	}
	if err := s.flushKept(); err != nil {
		return err
	}
	if s.device {
		if err := s.wipe(n); err != nil {
			return err
		}
	}
	s.at += n
	return nil
}

// wipe has a device forget what it had. BLKZEROOUT (linux/fs.h) takes an offset and a length.
func (s *sparse) wipe(n int64) error {
	at := s.at
	if at%sector == 0 && n%sector == 0 {
		area := [2]uint64{uint64(at), uint64(n)}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, s.file.Fd(), unix.BLKZEROOUT, uintptr(unsafe.Pointer(&area))); errno == 0 {
			return nil
		}
	}
	_, err := io.CopyN(io.NewOffsetWriter(s.file, at), zeros{}, n)
	return err
}

// flush writes what is kept, and gives a file its length.
func (s *sparse) flush() error {
	if err := s.flushKept(); err != nil {
		return err
	}
	if s.device {
		return nil
	}
	st, err := s.file.Stat()
	if err == nil && st.Size() < s.at {
		err = s.file.Truncate(s.at)
	}
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func zero(p []byte) bool {
	return len(p) == 0 || p[0] == 0 && bytes.Equal(p[1:], p[:len(p)-1])
}
