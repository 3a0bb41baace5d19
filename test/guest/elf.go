package guest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"io"
)

// xenNotePhys32Entry is XEN_ELFNOTE_PHYS32_ENTRY of Xen's
// include/public/elfnote.h: the 32-bit physical address at which a PVH guest
// starts, with paging off.
const xenNotePhys32Entry = 18

// pvhELF wraps code that is loaded at, and entered at, the physical address
// base in the smallest ELF file that a VMM boots as a PVH kernel. It is a 64-bit
// file, though the code is not, since cloud-hypervisor's loader knows no other.
//
// A second note says what the guest was made with, see ReadPVHOptions.
func pvhELF(base uint32, code []byte, o PVHOptions) ([]byte, error) {
	const headerSize, programSize, programs = 64, 56, 2

	// QEMU reads eight bytes of address from the note of a 64-bit file.
	note := le(uint32(4), uint32(8), uint32(xenNotePhys32Entry), [4]byte{'X', 'e', 'n'}, uint64(base))
	options, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	note = append(note, le(uint32(len(noteName)), uint32(len(options)), uint32(noteOptions), []byte(noteName), options)...)
	note = append(note, make([]byte, -len(note)&7)...)
	noteAt := uint64(headerSize + programs*programSize)
	codeAt := noteAt + uint64(len(note))

	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	header := elf.Header64{
		Ident:     ident,
		Type:      uint16(elf.ET_EXEC),
		Machine:   uint16(elf.EM_X86_64),
		Version:   uint32(elf.EV_CURRENT),
		Entry:     uint64(base),
		Phoff:     headerSize,
		Ehsize:    headerSize,
		Phentsize: programSize,
		Phnum:     programs,
	}
	load := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Off: codeAt, Vaddr: uint64(base), Paddr: uint64(base),
		Filesz: uint64(len(code)), Memsz: uint64(len(code)), Flags: uint32(elf.PF_R | elf.PF_W | elf.PF_X), Align: 4,
	}
	notes := elf.Prog64{
		Type: uint32(elf.PT_NOTE), Off: noteAt,
		Filesz: uint64(len(note)), Memsz: uint64(len(note)), Flags: uint32(elf.PF_R), Align: 4,
	}
	return append(le(header, load, notes), append(note, code...)...), nil
}

// The note that vmlet's own guests have.
const (
	noteName    = "vmlet\x00\x00\x00" // with its padding
	noteOptions = 1
)

// ReadPVHOptions returns what a PVH guest was made with, from its file: a made-up
// VMM that runs no code can then do as the guest would. ok is false for another's.
func ReadPVHOptions(file io.ReaderAt) (o PVHOptions, ok bool) {
	parsed, err := elf.NewFile(file)
	if err != nil {
		return o, false
	}
	for _, p := range parsed.Progs {
		if p.Type != elf.PT_NOTE || p.Filesz > 1<<16 {
			continue
		}
		notes := make([]byte, p.Filesz)
		if _, err := p.ReadAt(notes, 0); err != nil {
			return o, false
		}
		if _, after, found := bytes.Cut(notes, []byte(noteName)); found {
			return o, json.NewDecoder(bytes.NewReader(after)).Decode(&o) == nil
		}
	}
	return o, false
}

// le lays out values of fixed size one after the other, little-endian.
func le(values ...any) []byte {
	var b bytes.Buffer
	for _, v := range values {
		// A buffer takes every write, and all types here have a fixed size.
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}
