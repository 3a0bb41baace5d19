package probe

// From linux/kvm.h; the number in the middle is the size of the argument.
const (
	kvmSetUserMemoryRegion = 1<<30 | 32<<16 | 0xAE46  // _IOW(struct kvm_userspace_memory_region)
	kvmSetTSSAddr          = 0xAE47                   // _IO
	kvmSetIdentityMapAddr  = 1<<30 | 8<<16 | 0xAE48   // _IOW(__u64)
	kvmSetRegs             = 1<<30 | 144<<16 | 0xAE82 // _IOW(struct kvm_regs)
	kvmGetSregs            = 2<<30 | 312<<16 | 0xAE83 // _IOR(struct kvm_sregs)
	kvmSetSregs            = 1<<30 | 312<<16 | 0xAE84 // _IOW(struct kvm_sregs)
	kvmGetSupportedCPUID   = 3<<30 | 8<<16 | 0xAE05   // _IOWR(struct kvm_cpuid2)
	kvmGetSupportedHVCPUID = 3<<30 | 8<<16 | 0xAEC1   // _IOWR(struct kvm_cpuid2)
	kvmGetMSRIndexList     = 3<<30 | 4<<16 | 0xAE02   // _IOWR(struct kvm_msr_list)
	kvmGetMSRFeatureList   = 3<<30 | 4<<16 | 0xAE0A   // KVM_GET_MSR_FEATURE_INDEX_LIST, _IOWR(struct kvm_msr_list)
	kvmGetTSCKHz           = 0xAEA3                   // _IO
	kvmSetCPUID2           = 1<<30 | 8<<16 | 0xAE90   // _IOW(struct kvm_cpuid2)
	kvmGetMSRs             = 3<<30 | 8<<16 | 0xAE88   // _IOWR(struct kvm_msrs)
	kvmSetMSRs             = 1<<30 | 8<<16 | 0xAE89   // _IOW(struct kvm_msrs)

	kvmExitIO            = 2
	kvmExitShutdown      = 8
	kvmExitFailEntry     = 9
	kvmExitInternalError = 17
	kvmExitIOOut         = 1
)

// kvmRunHeader is the head of struct kvm_run (linux/kvm.h), with the io member of its union.
type kvmRunHeader struct {
	// entry has request_interrupt_window and immediate_exit, then padding; one word, for an atomic store.
	entry        uint32
	_            uint32
	exitReason   uint32
	_            [4]byte
	cr8          uint64
	apicBase     uint64
	ioDirection  uint8
	ioSize       uint8
	ioPort       uint16
	ioCount      uint32
	ioDataOffset uint64
}

// kvmRunImmediateExit is immediate_exit set, in kvmRunHeader.entry.
const kvmRunImmediateExit = 1 << 8

// The rest mirrors structures of asm/kvm.h for x86.
type (
	kvmUserspaceMemoryRegion struct {
		slot, flags                       uint32
		guestPhysAddr, memorySize, hvAddr uint64
	}
	kvmRegs struct {
		rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp uint64
		r8, r9, r10, r11, r12, r13, r14, r15   uint64
		rip, rflags                            uint64
	}
	kvmSegment struct {
		base                                                 uint64
		limit                                                uint32
		selector                                             uint16
		kind, present, dpl, db, s, l, g, avl, unusable, padd uint8
	}
	kvmDtable struct {
		base  uint64
		limit uint16
		_     [3]uint16
	}
	kvmSregs struct {
		cs, ds, es, fs, gs, ss, tr, ldt         kvmSegment
		gdt, idt                                kvmDtable
		cr0, cr2, cr3, cr4, cr8, efer, apicBase uint64
		interruptBitmap                         [4]uint64
	}
	kvmCPUIDEntry struct {
		function, index, flags, eax, ebx, ecx, edx uint32
		_                                          [3]uint32
	}
	// kvmCPUID is struct kvm_cpuid2 with room for as many entries as KVM ever has (KVM_MAX_CPUID_ENTRIES, 256).
	kvmCPUID struct {
		count, _ uint32
		entries  [256]kvmCPUIDEntry
	}
	// kvmMSR is struct kvm_msrs with one entry.
	kvmMSR struct {
		count, _ uint32
		index, _ uint32
		data     uint64
	}
)
