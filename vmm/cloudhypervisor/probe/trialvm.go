package probe

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// trialMemory is how much memory the VM has that the program is tried with, in bytes.
// None of it is touched but by what the program itself puts there.
const trialMemory = 32 << 20

// runVM boots a VM whose one vCPU halts. That works where the hypervisor does what the
// program asks of it, whatever the guest does.
func (s *scratch) runVM(ctx context.Context, client *chapi.Client) error {
	kernel, ram := filepath.Join(s.dir, "kernel"), filepath.Join(s.dir, "ram")
	if err := os.WriteFile(kernel, haltingKernel(), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(ram, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(ram, trialMemory); err != nil {
		return err
	}
	off := &chapi.Console{Mode: chapi.ConsoleOff}
	err := client.Create(ctx, &chapi.VMConfig{
		CPUs:    &chapi.CPUs{Boot: 1, Max: 1},
		Memory:  &chapi.Memory{Zones: []chapi.MemoryZone{{ID: cloudhypervisor.RAM, Size: trialMemory, File: ram, Shared: true}}},
		Payload: &chapi.Payload{Kernel: kernel},
		Serial:  off, Console: off,
	})
	if err != nil {
		return err
	}
	return client.Boot(ctx)
}

// saveVM saves it without its memory, and restores it. Some kernels' KVM lacks what the
// program reads of a vCPU for that, though VMs run.
func (s *scratch) saveVM(ctx context.Context, client *chapi.Client) error {
	folder := filepath.Join(s.dir, "snapshot")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return client.Pause(ctx) },
		func() error { return client.Snapshot(ctx, folder) },
		func() error { return client.Delete(ctx) },
		func() error { return client.Restore(ctx, chapi.Restore{Folder: folder}) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("a VM that was made to try it could not be saved and restored: %w", err)
		}
	}
	return nil
}

// haltingKernel is an ELF file for x86-64 with the note of a PVH kernel, which says in
// 32 bits where it is entered (XEN_ELFNOTE_PHYS32_ENTRY in Xen's
// include/public/elfnote.h).
func haltingKernel() []byte {
	const (
		base             = 1 << 20 // the first address above the legacy hole
		headerSize       = 64      // of Elf64_Ehdr
		programSize      = 56      // of Elf64_Phdr
		physicalEntry    = 18
		codeAt, codeSize = 0x100, 3
		noteAt, noteSize = headerSize + 2*programSize, 24
	)
	var out bytes.Buffer
	put := func(v any) { _ = binary.Write(&out, binary.LittleEndian, v) } // a buffer takes all that has a fixed size
	put(elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Entry: base, Phoff: headerSize, Ehsize: headerSize, Phentsize: programSize, Phnum: 2,
	})
	put(elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: codeAt, Vaddr: base, Paddr: base, Filesz: codeSize, Memsz: codeSize, Align: 4,
	})
	put(elf.Prog64{Type: uint32(elf.PT_NOTE), Flags: uint32(elf.PF_R), Off: noteAt, Filesz: noteSize, Memsz: noteSize, Align: 4})
	put([]uint32{4, 8, physicalEntry}) // sizes of the name and of what follows it, and the kind
	put([4]byte{'X', 'e', 'n'})
	put(uint64(base))
	put(make([]byte, codeAt-out.Len()))
	put([codeSize]byte{0xf4, 0xeb, 0xfd}) // hlt, and back to it
	return out.Bytes()
}
