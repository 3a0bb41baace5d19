package host

import (
	"strings"
	"testing"
)

// FuzzHugePageMounts reads any table of mounts: whoever mounts may name its path.
func FuzzHugePageMounts(f *testing.F) {
	f.Add("31 23 0:27 / /dev/hugepages rw,relatime shared:13 - hugetlbfs hugetlbfs rw,pagesize=2M\n")
	f.Add("1 1 0:1 / /a rw - hugetlbfs x rw,pagesize=1024M,pagesize=\n2 - hugetlbfs - hugetlbfs\n")
	f.Add("1 1 0:1 / /a\\040b rw - tmpfs x pagesize=99999999999G\n")
	f.Fuzz(func(t *testing.T, table string) {
		found, err := HugePageMounts(strings.NewReader(table))
		if err != nil {
			return
		}
		for size, path := range found {
			if size == 0 || !strings.Contains(table, path) {
				t.Errorf("%d at %q", size, path)
			}
		}
	})
}
