package ram

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/dedicated"
	"github.com/vmlet/vmlet/test/hugetlb"
)

// TestNear: pages are allocated at once, and what is not on the node of the vCPUs is reported.
func TestNear(t *testing.T) {
	f, err := os.Create(filepath.Join(hugetlb.Mount(t, 4), "ram"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(4 * hugetlb.Page); err != nil {
		t.Fatal(err)
	}
	own, err := dedicated.Of(0)
	if err != nil {
		t.Fatal(err)
	}
	last := len(own) - 1
	placed, err := dedicated.Place(dedicated.Wanted{VCPUs: len(own)}, own, dedicated.Where)
	if err != nil {
		t.Fatal(err)
	}
	m := plan.Memory{Size: 4 * hugetlb.Page, PageSize: hugetlb.Page}
	for _, c := range []struct {
		part plan.Near
		want string // empty: no error
	}{
		{plan.Near{Size: hugetlb.Page, VCPUs: []int{last + 1}}, "there is no vCPU"},
		{plan.Near{Offset: 1, Size: hugetlb.Page, VCPUs: []int{0}}, "a part of 2097152 bytes at 1"},
		{plan.Near{Offset: 4 * hugetlb.Page, Size: hugetlb.Page, VCPUs: []int{0}}, "a part of 2097152 bytes at 8388608"},
		{plan.Near{Size: hugetlb.Page, VCPUs: []int{0}}, ""},
		{plan.Near{Offset: 2 * hugetlb.Page, Size: 2 * hugetlb.Page, VCPUs: []int{last}}, ""},
	} {
		err := AllocateNear(t.Context(), f, m, c.part, placed)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v, want %q", c.part, err, c.want)
		}
		if err != nil {
			continue
		}
		if why, err := Elsewhere(f, m, c.part, placed); why != "" || err != nil {
			t.Errorf("%v: %s (%v)", c.part, why, err)
		}
	}
	var file unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &file); err != nil || file.Blocks*512/hugetlb.Page != 3 {
		t.Errorf("%d bytes are allocated (%v), want 3 pages", file.Blocks*512, err)
	}
}

func TestElsewhere(t *testing.T) {
	for _, c := range []struct {
		nodes []int
		pages map[int]uint64
		want  string // part of it; empty: nothing
	}{
		{[]int{0}, map[int]uint64{0: 4}, ""},
		{[]int{1}, map[int]uint64{1: 4, 0: 0}, ""},
		{[]int{dedicated.NoNode}, map[int]uint64{0: 4}, ""},
		{[]int{1}, nil, ""},
		{[]int{1}, map[int]uint64{0: 1, 1: 3}, "node 1 of the host, where the CPUs of vCPUs [2 3] are, had too few free huge pages: 1 of 4 are on other nodes"},
		{[]int{0, 1}, map[int]uint64{0: 4}, "the CPUs of vCPUs [2 3] are in nodes [0 1] of the host"},
	} {
		if got := elsewhere([]int{2, 3}, c.nodes, c.pages); got != c.want {
			t.Errorf("nodes %v, pages %v: %q, want %q", c.nodes, c.pages, got, c.want)
		}
	}
}

func TestCountPages(t *testing.T) {
	const maps = `00400000 default file=/bin/shim mapped=3 N0=3 kernelpagesize_kB=4
7f0000000000 default file=/dev/hugepages/ram huge dirty=6 N0=2 N3=4 kernelpagesize_kB=2048
7f0000c00000 default file=/Nord=7 huge N1=x kernelpagesize_kB=2048
`
	for address, want := range map[uintptr]map[int]uint64{0x7f0000000000: {0: 2, 3: 4}, 0x400000: {0: 3}, 0x7f0000c00000: {}, 0x1000: nil} {
		got, err := countPages(strings.NewReader(maps), address)
		if (err == nil) != (want != nil) || len(got) != len(want) {
			t.Errorf("%x: %v (%v), want %v", address, got, err, want)
		}
		for node, n := range want {
			if got[node] != n {
				t.Errorf("%x: %d pages of node %d, want %d", address, got[node], node, n)
			}
		}
	}
}
