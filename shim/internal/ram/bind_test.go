package ram

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
)

// onTmpfs makes a file that remembers policies.
func onTmpfs(t *testing.T, size int64) *os.File {
	t.Helper()
	f, err := os.CreateTemp("/dev/shm", "vmlet-test")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { f.Close(); os.Remove(f.Name()) })
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		t.Skipf("%s is not on a tmpfs", filepath.Dir(f.Name()))
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return f
}

// policyAt asks the kernel about the page at an offset, by a mapping of its own.
func policyAt(t *testing.T, f *os.File, offset int64) (mode int32) {
	t.Helper()
	mapped, err := unix.Mmap(int(f.Fd()), offset, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	var mask [16]uint64
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), uintptr(unsafe.Pointer(&mask)), 1024+1,
		uintptr(unsafe.Pointer(unsafe.SliceData(mapped))), unix.MPOL_F_ADDR, 0)
	if errno != 0 {
		t.Skipf("get_mempolicy: %v", errno)
	}
	return mode
}

func TestBindRAM(t *testing.T) {
	const part = 1 << 20
	f := onTmpfs(t, 4*part)
	if before := policyAt(t, f, part); before != unix.MPOL_DEFAULT {
		t.Skipf("this process has a policy of its own: %d", before)
	}
	err := bind(f, plan.Memory{Size: 4 * part, Bindings: []plan.Binding{
		{Offset: part, Size: part, Nodes: []int{0}, Policy: plan.MemoryStrict},
		{Offset: 2 * part, Size: part, Nodes: []int{0}, Policy: plan.MemoryInterleave},
		{Offset: 3 * part, Size: part, Nodes: []int{0}, Policy: plan.MemoryPreferred},
	}})
	if err != nil {
		if strings.Contains(err.Error(), unix.ENOSYS.Error()) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	for i, want := range []int32{unix.MPOL_DEFAULT, unix.MPOL_BIND, unix.MPOL_INTERLEAVE, unix.MPOL_PREFERRED} {
		for _, offset := range []int64{0, part - 4096} {
			if got := policyAt(t, f, int64(i)*part+offset); got != want {
				t.Errorf("part %d has policy %d at %d, want %d", i, got, offset, want)
			}
		}
	}
}

func TestBindRAMRefuses(t *testing.T) {
	const size = 1 << 20
	for name, b := range map[string]plan.Binding{
		"no such node":  {Size: size, Nodes: []int{4095}, Policy: plan.MemoryStrict},
		"no node":       {Size: size, Nodes: []int{-1}, Policy: plan.MemoryStrict},
		"a large node":  {Size: size, Nodes: []int{1 << 30}, Policy: plan.MemoryStrict},
		"no policy":     {Size: size, Nodes: []int{0}},
		"nothing":       {Nodes: []int{0}, Policy: plan.MemoryStrict},
		"too much":      {Size: 2 * size, Nodes: []int{0}, Policy: plan.MemoryStrict},
		"beyond":        {Offset: 1 << 63, Size: 1 << 63, Nodes: []int{0}, Policy: plan.MemoryStrict},
		"not at a page": {Offset: 1, Size: 4096, Nodes: []int{0}, Policy: plan.MemoryStrict},
	} {
		err := bind(onTmpfs(t, size), plan.Memory{Size: size, Bindings: []plan.Binding{b}})
		var known *shim.Error
		if !errors.As(err, &known) || known.Field != "numa.nodes" {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
