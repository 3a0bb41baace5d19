package probe

import "encoding/binary"

// The trial guest's memory, in guest physical addresses. It is one slot at 0, which long mode maps with a single 2 MiB page.
const (
	trialMemory = 0x10000
	trialPML4   = 0x1000
	trialPDPT   = 0x2000
	trialPD     = 0x3000
	trialCode   = 0x4000
	trialGDT    = 0x5000
	trialSum    = 0x6000
)

// Selectors into the trial guest's GDT.
const (
	selCode32 = 0x08
	selData   = 0x10
	selCode64 = 0x18
)

// The ports on which the trial guest reports the sum at the end of a round, and then that the atomic instruction worked.
const (
	portProtected = 0xE1
	portLong      = 0xE2
	portAtomic    = 0xE3
)

// trialImage is the trial guest's memory: page tables, a GDT, and code that starts at trialCode in flat 32-bit protected mode.
func trialImage() []byte {
	mem := make([]byte, trialMemory)
	le := binary.LittleEndian
	// Intel SDM volume 3, 4.5: entries present and writable; bit 7 makes the PD entry a 2 MiB page.
	le.PutUint64(mem[trialPML4:], trialPDPT|3)
	le.PutUint64(mem[trialPDPT:], trialPD|3)
	le.PutUint64(mem[trialPD:], 0|1<<7|3)
	// Flat segments, base 0, limit 4 GiB (SDM volume 3, 3.4.5).
	le.PutUint64(mem[trialGDT+selCode32:], 0x00CF9B000000FFFF)
	le.PutUint64(mem[trialGDT+selData:], 0x00CF93000000FFFF)
	le.PutUint64(mem[trialGDT+selCode64:], 0x00AF9B000000FFFF)
	copy(mem[trialCode:], trialProgram())
	return mem
}

// trialProgram does one round in protected mode, then goes to long mode the way a kernel does, and does rounds there without
// end, each followed by a 16-byte compare-and-exchange: Linux needs it from its allocator on, and KVM has no emulation of it.
func trialProgram() []byte {
	le := binary.LittleEndian
	code := []byte{0xB9}                              // mov ecx, trialIterations
	code = le.AppendUint32(code, trialIterations)     //
	code = append(code, 0xBF)                         // mov edi, trialSum
	code = le.AppendUint32(code, trialSum)            //
	code = append(code, 0x01, 0x0F)                   // 1: add [edi], ecx
	code = append(code, 0x49)                         //    dec ecx
	code = append(code, 0x75, 0xFB)                   //    jnz 1b
	code = append(code, 0x8B, 0x07)                   // mov eax, [edi]
	code = append(code, 0xE7, portProtected)          // out portProtected, eax
	code = append(code, 0xB8)                         // mov eax, trialPML4
	code = le.AppendUint32(code, trialPML4)           //
	code = append(code, 0x0F, 0x22, 0xD8)             // mov cr3, eax
	code = append(code, 0x0F, 0x20, 0xE0)             // mov eax, cr4
	code = append(code, 0x83, 0xC8, 0x20)             // or eax, CR4.PAE
	code = append(code, 0x0F, 0x22, 0xE0)             // mov cr4, eax
	code = append(code, 0xB9, 0x80, 0x00, 0x00, 0xC0) // mov ecx, IA32_EFER
	code = append(code, 0x0F, 0x32)                   // rdmsr
	code = append(code, 0x0D, 0x00, 0x01, 0x00, 0x00) // or eax, EFER.LME
	code = append(code, 0x0F, 0x30)                   // wrmsr
	code = append(code, 0x0F, 0x20, 0xC0)             // mov eax, cr0
	code = append(code, 0x0D, 0x00, 0x00, 0x00, 0x80) // or eax, CR0.PG
	code = append(code, 0x0F, 0x22, 0xC0)             // mov cr0, eax
	code = append(code, 0xEA)                         // ljmp selCode64:2f
	code = le.AppendUint32(code, uint32(trialCode+len(code)+6))
	code = le.AppendUint16(code, selCode64) //
	again := len(code)
	code = append(code, 0xBF)                               // 2: mov edi, trialSum (clears the upper half of rdi)
	code = le.AppendUint32(code, trialSum)                  //
	code = append(code, 0x31, 0xC0)                         // xor eax, eax
	code = append(code, 0x48, 0x89, 0x07)                   // mov [rdi], rax
	code = append(code, 0xB9)                               // mov ecx, trialIterations
	code = le.AppendUint32(code, trialIterations)           //
	code = append(code, 0x48, 0x01, 0x0F)                   // 3: add [rdi], rcx
	code = append(code, 0x48, 0xFF, 0xC9)                   //    dec rcx
	code = append(code, 0x75, 0xF8)                         //    jnz 3b
	code = append(code, 0x48, 0x8B, 0x07)                   // mov rax, [rdi]
	code = append(code, 0xE7, portLong)                     // out portLong, eax
	code = append(code, 0xF0, 0x48, 0x0F, 0xC7, 0x4F, 0x10) // lock cmpxchg16b [rdi+16]
	code = append(code, 0x8B, 0x07)                         // mov eax, [rdi]
	code = append(code, 0xE7, portAtomic)                   // out portAtomic, eax
	return append(code, 0xEB, byte(again-len(code)-2))      // jmp 2b
}
