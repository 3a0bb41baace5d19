package chtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Where RAM is in the guest, on x86-64 (arch/src/x86_64/layout.rs): below the hole
// for devices, and from 4 GiB on.
const (
	holeStart = 3 << 30
	holeEnd   = 4 << 30
)

// ram is a VM's memory, mapped as its zones say.
type ram struct {
	regions []*region
}

// region is a stretch of guest memory.
type region struct {
	address uint64
	data    []byte
	shared  bool
	file    *os.File // nil: anonymous and private
	offset  uint64   // in file
}

// memoryRange is one as a snapshot's state.json has it.
type memoryRange struct {
	Address uint64 `json:"gpa"`
	Length  uint64 `json:"length"`
}

// mapRAM maps a VM's memory, or what of it a fence lets it.
func mapRAM(m *memoryConfig, f *fence) (*ram, error) {
	r := &ram{}
	zones, err := m.layout()
	if err != nil {
		return nil, err
	}
	address := uint64(0)
	for _, z := range zones {
		for offset := uint64(0); offset < z.Size; {
			length := z.Size - offset
			if address < holeStart {
				length = min(length, holeStart-address)
			}
			piece, err := mapRegion(z, offset, length, f)
			if err != nil {
				r.close()
				return nil, causedBy(err, "memory zone %q", z.ID)
			}
			piece.address = address
			r.regions = append(r.regions, piece)
			offset += length
			if address += length; address == holeStart {
				address = holeEnd
			}
		}
	}
	return r, nil
}

// layout are a VM's zones, which without any of its own is one for all memory
// (validate_memory_config in vmm/src/memory_manager.rs).
func (m *memoryConfig) layout() ([]zoneConfig, error) {
	zones := m.Zones
	switch {
	case m.Size == 0 && len(zones) == 0:
		return nil, errors.New("memory of size 0 needs zones")
	case m.Size != 0 && zones != nil:
		return nil, errors.New("memory has a size or zones, not both")
	case m.Size != 0:
		zones = []zoneConfig{{ramConfig: m.ramConfig, ID: "mem0"}}
	}
	seen := map[string]bool{}
	for _, z := range zones {
		switch {
		case seen[z.ID]:
			return nil, fmt.Errorf("memory zone %q is listed twice", z.ID)
		case z.Shared && z.File != "" && z.HostNode != nil:
			return nil, fmt.Errorf("memory zone %q: a shared file can't be bound to a node of the host", z.ID)
		case z.Hotplug != nil:
			return nil, fmt.Errorf("memory zone %q: the stand-in adds no memory", z.ID)
		}
		seen[z.ID] = true
	}
	return zones, nil
}

// mapRegion maps a piece of a zone. A file has to be there, and be long enough.
func mapRegion(z zoneConfig, offset, length uint64, f *fence) (*region, error) {
	align, err := z.alignment()
	if err != nil {
		return nil, err
	}
	if z.Size == 0 || z.Size%align != 0 {
		return nil, fmt.Errorf("%d bytes are no multiple of the page size %d", z.Size, align)
	}
	flags := unix.MAP_NORESERVE
	p := &region{shared: z.Shared, offset: offset}
	switch {
	case z.File != "":
		p.file, err = openBacking(z, int64(offset+length), f)
	case z.Shared || z.Hugepages:
		err = errors.New("the stand-in has shared memory and huge pages only in files")
	}
	if err != nil {
		return nil, err
	}
	fd := -1
	switch {
	case p.file == nil:
		flags |= unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	case p.shared:
		flags, fd = flags|unix.MAP_SHARED, int(p.file.Fd())
	default:
		flags, fd = flags|unix.MAP_PRIVATE, int(p.file.Fd())
	}
	p.data, err = unix.Mmap(fd, int64(p.offset), int(length), unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		p.close()
		return nil, os.NewSyscallError("mmap", err)
	}
	return p, nil
}

func (z zoneConfig) alignment() (uint64, error) {
	page := uint64(os.Getpagesize())
	switch {
	case z.File == "":
		return page, nil
	case z.Hugepages && z.HugepageSize != nil:
		return *z.HugepageSize, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(z.File, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: z.File, Err: err}
	}
	return max(page, uint64(st.Bsize)), nil
}

func openBacking(z zoneConfig, end int64, f *fence) (*os.File, error) {
	flags := os.O_RDONLY
	if z.Shared {
		flags = os.O_RDWR
	}
	file, err := f.open(z.File, flags, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = fmt.Errorf("%s is a folder", z.File)
	case info.Size() < end:
		err = fmt.Errorf("%s has %d bytes, not %d", z.File, info.Size(), end)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func (r *ram) close() {
	for _, p := range r.regions {
		p.close()
	}
	r.regions = nil
}

func (p *region) close() {
	if p.data != nil {
		unix.Munmap(p.data)
		p.data = nil
	}
	if p.file != nil {
		p.file.Close()
		p.file = nil
	}
}

// kept tells whether memory outlives the VMM in a file that somebody can find:
// then a snapshot leaves it out.
func (p *region) kept() bool {
	if p.file == nil || !p.shared {
		return false
	}
	var st unix.Stat_t
	return unix.Fstat(int(p.file.Fd()), &st) == nil && st.Nlink > 0
}

// unsaved are the ranges that a snapshot has to have.
func (r *ram) unsaved() []memoryRange {
	ranges := []memoryRange{}
	for _, p := range r.regions {
		if !p.kept() {
			ranges = append(ranges, memoryRange{p.address, uint64(len(p.data))})
		}
	}
	return ranges
}

// at is memory from a guest's address on, as far as its region goes.
func (r *ram) at(address uint64) []byte {
	for _, p := range r.regions {
		if address >= p.address && address < p.address+uint64(len(p.data)) {
			return p.data[address-p.address:]
		}
	}
	return nil
}

// stretch is a range's memory, all of which has to be there.
func (r *ram) stretch(m memoryRange) ([]byte, error) {
	data := r.at(m.Address)
	if uint64(len(data)) < m.Length {
		return nil, fmt.Errorf("there is no memory of %d bytes at %#x", m.Length, m.Address)
	}
	return data[:m.Length], nil
}

const chunk = 1 << 20

// save writes the ranges one after the other, with holes for what is zero.
func (r *ram) save(file *os.File, ranges []memoryRange) error {
	zero := make([]byte, chunk)
	offset := int64(0)
	for _, m := range ranges {
		data, err := r.stretch(m)
		if err != nil {
			return err
		}
		for piece := range slices.Chunk(data, chunk) {
			if string(piece) != string(zero[:len(piece)]) {
				if _, err := file.WriteAt(piece, offset); err != nil {
					return err
				}
			}
			offset += int64(len(piece))
		}
	}
	return file.Truncate(offset)
}

// load reads what save wrote. As with the real one, what is behind the end of a
// file that is too short counts as a hole in it.
func (r *ram) load(file *os.File, ranges []memoryRange) error {
	offset := int64(0)
	for _, m := range ranges {
		data, err := r.stretch(m)
		if err != nil {
			return err
		}
		for piece := range slices.Chunk(data, chunk) {
			n, err := file.ReadAt(piece, offset)
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			clear(piece[n:])
			offset += int64(len(piece))
		}
	}
	return nil
}
