package ram

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/dedicated"
)

// AllocateNear has the kernel allocate a part of RAM next to the CPUs of its vCPUs. A container may not say
// which node pages come from, as runtimes refuse mbind(2): they come from the node of the thread that
// allocates them, if it has enough: Elsewhere says whether it had.
func AllocateNear(ctx context.Context, f *os.File, m plan.Memory, part plan.Near, placed dedicated.Placement) error {
	if m.PageSize == 0 || part.Size == 0 || part.Offset > m.Size || part.Size > m.Size-part.Offset || (part.Offset|part.Size)%m.PageSize != 0 {
		return fmt.Errorf("the plan has a part of %d bytes at %d of %d in pages of %d", part.Size, part.Offset, m.Size, m.PageSize)
	}
	var cpus []int
	for _, v := range part.VCPUs {
		if v < 0 || v >= len(placed.VCPUs) {
			return fmt.Errorf("there is no vCPU %d: they are 0 to %d", v, len(placed.VCPUs)-1)
		}
		cpus = append(cpus, placed.VCPUs[v])
	}
	return dedicated.On(cpus, func() error { return allocate(ctx, f, part.Offset, part.Size) })
}

// Elsewhere says what of a part that is allocated is not next to its vCPUs; empty: nothing.
func Elsewhere(f *os.File, m plan.Memory, part plan.Near, placed dedicated.Placement) (why string, err error) {
	pages, err := pagesOfNodes(f, part, m.PageSize)
	if err != nil {
		return "", err
	}
	return elsewhere(part.VCPUs, placed.Nodes(part.VCPUs, dedicated.Where), pages), nil
}

// elsewhere is why a part of memory is not in its vCPUs' node; pages are how many each node has.
func elsewhere(vcpus, nodes []int, pages map[int]uint64) string {
	if len(nodes) > 1 {
		return fmt.Sprintf("the CPUs of vCPUs %v are in nodes %v of the host", vcpus, nodes)
	}
	var away, all uint64
	for node, n := range pages {
		all += n
		if nodes[0] != dedicated.NoNode && node != nodes[0] {
			away += n
		}
	}
	if away == 0 {
		return ""
	}
	return fmt.Sprintf("node %d of the host, where the CPUs of vCPUs %v are, had too few free huge pages: %d of %d are on other nodes", nodes[0], vcpus, away, all)
}

// allocate makes the kernel allocate pages now, some at a time so that a launch can be given up.
func allocate(ctx context.Context, f *os.File, offset, size uint64) error {
	const step = 1 << 30
	for size > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n := min(size, step)
		err := unix.Fallocate(int(f.Fd()), 0, int64(offset), int64(n))
		if errors.Is(err, unix.EINTR) {
			continue // what is allocated stays so
		}
		if err != nil {
			return fmt.Errorf("fallocate %d bytes of huge pages: %w", n, err)
		}
		offset, size = offset+n, size-n
	}
	return nil
}

// pagesOfNodes counts the pages of an allocated part on each node of the host. Empty: the kernel has no nodes.
// It reads numa_maps, as containers may not ask by system calls (get_mempolicy, move_pages).
func pagesOfNodes(f *os.File, part plan.Near, page uint64) (map[int]uint64, error) {
	maps, err := os.Open("/proc/self/numa_maps")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	mapped, err := unix.Mmap(int(f.Fd()), int64(part.Offset), int(part.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	defer func() { _ = unix.Munmap(mapped) }()
	var sum byte
	for at := uint64(0); at < part.Size; at += page {
		sum |= mapped[at] // only what is in the page tables is counted
	}
	runtime.KeepAlive(sum)
	return countPages(maps, uintptr(unsafe.Pointer(unsafe.SliceData(mapped))))
}

// countPages reads the line of the mapping at an address (Documentation/filesystems/proc.rst, numa_maps).
func countPages(maps io.Reader, address uintptr) (map[int]uint64, error) {
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.TrimLeft(fields[0], "0") != strconv.FormatUint(uint64(address), 16) {
			continue
		}
		pages := make(map[int]uint64)
		for _, field := range fields[1:] {
			key, value, _ := strings.Cut(field, "=")
			node, err := strconv.Atoi(strings.TrimPrefix(key, "N"))
			n, errCount := strconv.ParseUint(value, 10, 64)
			if strings.HasPrefix(key, "N") && err == nil && errCount == nil {
				pages[node] = n
			}
		}
		return pages, nil
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("numa_maps has no mapping at %x", address)
}
