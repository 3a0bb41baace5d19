package ram

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/plan"
)

// maxHostNode bounds the numbers of nodes, and with them the mask: the kernel takes
// no mask of more than a page (mm/mempolicy.c, get_nodes).
const maxHostNode = 4096

// bind says which NUMA nodes of the host the pages come from, before there are
// any. Of a file on a tmpfs or hugetlbfs, mapped shared, the file remembers it and not
// the mapping (mbind(2)): so it holds for what is filled in at a restore, too.
func bind(f *os.File, m plan.Memory) error {
	for _, b := range m.Bindings {
		if b.Size == 0 || b.Offset > m.Size || b.Size > m.Size-b.Offset {
			return invalid("numa.nodes", "the plan binds %d bytes at %d of %d", b.Size, b.Offset, m.Size)
		}
		if err := bindPart(f, b); err != nil {
			return invalid("numa.nodes", "mbind %s to nodes %v of the host: %v: leave hostNodes out, or name nodes that have memory%s", b.Policy, b.Nodes, err, contract.Advice("vmlet probe"))
		}
	}
	return nil
}

func bindPart(f *os.File, b plan.Binding) error {
	mode, mask, err := policyOf(b)
	if err != nil {
		return err
	}
	mapped, err := unix.Mmap(int(f.Fd()), int64(b.Offset), int(b.Size), unix.PROT_NONE, unix.MAP_SHARED)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	defer func() { _ = unix.Munmap(mapped) }()
	// One bit more than there are: the kernel leaves out the last.
	bits := uintptr(len(mask))*uintptr(unsafe.Sizeof(mask[0]))*8 + 1
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(mapped))), uintptr(len(mapped)),
		uintptr(mode), uintptr(unsafe.Pointer(unsafe.SliceData(mask))), bits, 0)
	runtime.KeepAlive(mask)
	if errno != 0 {
		return errno
	}
	return nil
}

// policyOf is a binding as mbind(2) has it.
func policyOf(b plan.Binding) (mode int, mask []uint64, err error) {
	switch b.Policy {
	case plan.MemoryStrict:
		mode = unix.MPOL_BIND
	case plan.MemoryPreferred:
		mode = unix.MPOL_PREFERRED
	case plan.MemoryInterleave:
		mode = unix.MPOL_INTERLEAVE
	default:
		return 0, nil, fmt.Errorf("the policy %.40q is unknown to this shim", b.Policy)
	}
	mask = make([]uint64, 1)
	for _, node := range b.Nodes {
		if node < 0 || node >= maxHostNode {
			return 0, nil, fmt.Errorf("%d is no node", node)
		}
		for len(mask) <= node/64 {
			mask = append(mask, 0)
		}
		mask[node/64] |= 1 << (node % 64)
	}
	return mode, mask, nil
}
