// Package hugetlb has huge pages for tests.
package hugetlb

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Page is the size of a page in bytes: of x86, and of arm64 with pages of 4 KiB.
const Page = 2 << 20

// Mount mounts a hugetlbfs, and has the kernel set n more pages aside for the test. Tests that do so wait for
// one another.
func Mount(t *testing.T, n int) string {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "vmlet-tests-hugetlb.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	const number = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
	read := func() int {
		text, err := os.ReadFile(number)
		if err != nil {
			t.Skip(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	write := func(n int) error { return os.WriteFile(number, []byte(strconv.Itoa(n)), 0) }
	before := read()
	if err := write(before + n); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		_ = write(before)
		for range 600 { // processes that have some may be ending
			if read() <= before {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Error("huge pages are still in use")
	})
	if has := read(); has < before+n {
		t.Skipf("the kernel has %d huge pages, and %d are wanted", has, before+n)
	}
	folder := t.TempDir()
	if err := unix.Mount("hugetlbfs", folder, "hugetlbfs", 0, "pagesize=2M"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(folder, unix.MNT_DETACH) })
	return folder
}
