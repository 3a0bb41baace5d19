package probe

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/device"
	"golang.org/x/sys/unix"
)

// tryGuest runs the trial guest in a fresh virtual machine and says what came of it.
func tryGuest(ctx context.Context, kvm, vm int) hypervisor.Status {
	m, fail := newMachine(kvm, vm)
	if fail != nil {
		return fail.Status()
	}
	defer m.close()
	quirks, fail := m.setCPUID(kvm)
	if fail != nil {
		return fail.Status()
	}
	if fail := m.setRegisters(); fail != nil {
		return fail.Status()
	}
	s := verdict(m.trial(ctx))
	s.CPUQuirks = quirks
	return s
}

// machine is a virtual machine with one vCPU and the trial guest in its memory.
type machine struct {
	vcpu int
	run  []byte // struct kvm_run and what follows it
	mem  []byte
}

func newMachine(kvm, vm int) (*machine, *device.Failure) {
	m := &machine{vcpu: -1}
	if fail := m.make(kvm, vm); fail != nil {
		m.close()
		return nil, fail
	}
	return m, nil
}

func (m *machine) make(kvm, vm int) *device.Failure {
	// Older Intel processors can't run without paging and need three pages and a TSS set aside below 4 GiB; any place outside
	// the guest's memory does, and others ignore it.
	identity := uint64(0xFFFBC000)
	if _, err := device.Ioctl(vm, kvmSetIdentityMapAddr, unsafe.Pointer(&identity)); err != nil {
		return device.Failed("KVM_SET_IDENTITY_MAP_ADDR", device.Errno(err), "")
	}
	if _, err := device.IoctlInt(vm, kvmSetTSSAddr, 0xFFFBD000); err != nil {
		return device.Failed("KVM_SET_TSS_ADDR", device.Errno(err), "")
	}
	var err error
	if m.mem, err = unix.Mmap(-1, 0, trialMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE); err != nil {
		return device.Failed("mapping memory for the trial guest", device.Errno(err), "")
	}
	copy(m.mem, trialImage())
	region := kvmUserspaceMemoryRegion{memorySize: trialMemory, hvAddr: uint64(uintptr(unsafe.Pointer(&m.mem[0])))}
	if _, err := device.Ioctl(vm, kvmSetUserMemoryRegion, unsafe.Pointer(&region)); err != nil {
		return device.Failed("KVM_SET_USER_MEMORY_REGION", device.Errno(err), "")
	}
	if m.vcpu, err = device.IoctlInt(vm, kvmCreateVCPU, 0); err != nil {
		return device.Failed("KVM_CREATE_VCPU", device.Errno(err), createRemedy(device.Errno(err)))
	}
	size, err := device.IoctlInt(kvm, kvmGetVCPUMmapSize, 0)
	if err != nil || size < int(unsafe.Sizeof(kvmRunHeader{})) {
		return device.Failed(fmt.Sprintf("KVM_GET_VCPU_MMAP_SIZE (%d)", size), device.Errno(err), "")
	}
	if m.run, err = unix.Mmap(m.vcpu, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return device.Failed("mapping the vCPU's state", device.Errno(err), "")
	}
	return nil
}

func (m *machine) close() {
	if m.run != nil {
		unix.Munmap(m.run)
	}
	if m.vcpu >= 0 {
		unix.Close(m.vcpu)
	}
	if m.mem != nil {
		unix.Munmap(m.mem)
	}
}

// setRegisters puts the vCPU at the trial guest's start, in flat 32-bit protected mode.
func (m *machine) setRegisters() *device.Failure {
	var s kvmSregs
	if _, err := device.Ioctl(m.vcpu, kvmGetSregs, unsafe.Pointer(&s)); err != nil {
		return device.Failed("KVM_GET_SREGS", device.Errno(err), "")
	}
	s.cs = kvmSegment{limit: 0xFFFFFFFF, selector: selCode32, kind: 0xB, present: 1, db: 1, s: 1, g: 1}
	data := kvmSegment{limit: 0xFFFFFFFF, selector: selData, kind: 0x3, present: 1, db: 1, s: 1, g: 1}
	s.ds, s.es, s.fs, s.gs, s.ss = data, data, data, data, data
	s.gdt = kvmDtable{base: trialGDT, limit: selCode64 + 7}
	s.cr0 |= 1 // CR0.PE
	if _, err := device.Ioctl(m.vcpu, kvmSetSregs, unsafe.Pointer(&s)); err != nil {
		return device.Failed("KVM_SET_SREGS", device.Errno(err), "")
	}
	regs := kvmRegs{rip: trialCode, rflags: 1 << 1} // bit 1 of RFLAGS is always set
	if _, err := device.Ioctl(m.vcpu, kvmSetRegs, unsafe.Pointer(&regs)); err != nil {
		return device.Failed("KVM_SET_REGS", device.Errno(err), "")
	}
	return nil
}

// trial runs the guest until enough rounds are measured, it fails, or ctx ends.
func (m *machine) trial(ctx context.Context) outcome {
	// The signal that breaks KVM_RUN off goes to this thread, and its CPU time is what a round is measured by.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer m.kickWhenDone(ctx, unix.Gettid())()

	var o outcome
	for !o.enough() {
		before := threadTime()
		port, sum, err := m.runToOutput(ctx)
		took := threadTime() - before
		if err != nil {
			o.failure = err
			return o
		}
		if sum != trialWant {
			o.failure = fmt.Errorf("it added up %d where %d was right", sum, trialWant)
			return o
		}
		switch port {
		case portProtected:
			o.protected = append(o.protected, took)
		case portLong:
			o.long = append(o.long, took)
		case portAtomic:
			o.atomic = true
		default:
			o.failure = fmt.Errorf("it wrote to port %#x, which it has no instruction for", port)
			return o
		}
	}
	return o
}

// kickWhenDone makes KVM_RUN on the given thread return soon after ctx ends. The returned function calls that off and waits until
// nothing touches the vCPU any more.
func (m *machine) kickWhenDone(ctx context.Context, tid int) func() {
	kicked := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(kicked)
		// immediate_exit covers a signal that comes before KVM_RUN is entered.
		atomic.StoreUint32(&m.header().entry, kvmRunImmediateExit)
		// SIGURG is what the Go runtime itself interrupts threads with: it has a handler, and programs must expect it.
		unix.Tgkill(os.Getpid(), tid, unix.SIGURG)
	})
	return func() {
		if !stop() {
			<-kicked
		}
	}
}

func (m *machine) header() *kvmRunHeader { return (*kvmRunHeader)(unsafe.Pointer(&m.run[0])) }

// runToOutput runs the guest until it writes a word to a port.
func (m *machine) runToOutput(ctx context.Context) (port uint16, value uint32, err error) {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(m.vcpu), kvmRun, 0)
		switch {
		case ctx.Err() != nil:
			return 0, 0, fmt.Errorf("it didn't end in time (%w)", ctx.Err())
		case errno == unix.EINTR || errno == unix.EAGAIN:
			continue
		case errno != 0:
			return 0, 0, fmt.Errorf("KVM_RUN: %w", errno)
		}
		return m.output()
	}
}

func (m *machine) output() (port uint16, value uint32, err error) {
	h := m.header()
	switch h.exitReason {
	case kvmExitIO:
	case kvmExitShutdown:
		return 0, 0, fmt.Errorf("it ended in a triple fault (KVM_EXIT_SHUTDOWN)")
	case kvmExitInternalError:
		return 0, 0, fmt.Errorf("KVM couldn't emulate an instruction (KVM_EXIT_INTERNAL_ERROR)")
	case kvmExitFailEntry:
		return 0, 0, fmt.Errorf("the processor refused to run it (KVM_EXIT_FAIL_ENTRY)")
	default:
		return 0, 0, fmt.Errorf("it left with KVM exit reason %d", h.exitReason)
	}
	if h.ioDirection != kvmExitIOOut || h.ioSize != 4 || h.ioDataOffset+4 > uint64(len(m.run)) {
		return 0, 0, fmt.Errorf("KVM reported port %#x, direction %d, size %d, for a write of 4 bytes", h.ioPort, h.ioDirection, h.ioSize)
	}
	return h.ioPort, *(*uint32)(unsafe.Pointer(&m.run[h.ioDataOffset])), nil
}

// threadTime is the CPU time of the calling thread, guest time included: other processes on a busy machine don't count.
func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
