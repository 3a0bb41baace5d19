package sysfs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/sysfs/sysfstest"

	"github.com/vmlet/vmlet/sysfs/notation"
)

// TestBounds: a tree that claims as many CPUs as can be, all of which are in all
// of the groups of all of the others, costs notes and neither hours nor memory.
func TestBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many files")
	}
	tree := sysfstest.Machine{Dies: 1}.Write(t)
	const all = "0-65535"
	tree.File(cpuDir+"present", all)
	tree.File(cpuDir+"online", "0-9999")
	tree.File("proc/4711/status", "Cpus_allowed_list:\t"+all)
	for id := range 500 {
		folder := fmt.Sprintf("%scpu%d/", cpuDir, id)
		// Each is its own package, so that nothing settles the die.
		tree.Printf(folder+"topology/physical_package_id", "%d", id)
		tree.Printf(folder+"topology/package_cpus_list", "%d", id)
		tree.Printf(folder+"topology/die_id", "%d", id)
		tree.File(folder+"topology/die_cpus_list", all)
		tree.Printf(folder+"topology/core_cpus_list", "%d-65535", id)
		tree.Printf(folder+"cache/index0/shared_cpu_list", "%d,%d-65535", id, id+2)
		tree.File(folder+"cache/index0/level", "1")
		tree.File(folder+"cache/index0/type", "Data")
	}
	for id := range 150 {
		tree.File(fmt.Sprintf("sys/devices/system/node/node%d/cpulist", id), all)
	}
	h := Read(rootsOf(tree))
	checkHost(t, h)
	if len(h.CPUs) != notation.MaxID || len(h.Notes) != maxNotes+1 {
		t.Errorf("%d CPUs, %d notes", len(h.CPUs), len(h.Notes))
	}
}

// TestOneFact: each file in turn is missing, empty, garbage and too large, which
// costs a note at most and never another file's facts.
func TestOneFact(t *testing.T) {
	tree := sysfstest.Machine{Dies: 1, Threads: 2}.Write(t)
	tree.File("sys/fs/cgroup/misc.capacity", "sev 5")
	whole := Read(rootsOf(tree))
	for _, path := range files(t, tree) {
		if strings.Contains(path, "/cpu1/") || strings.Contains(path, "map") {
			continue // as with cpu0's; not read at all
		}
		old, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, content := range []string{"", "garbage\n", "-1\n", "9223372036854775808\n", "0-999\n"} {
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
			h := Read(rootsOf(tree))
			checkHost(t, h)
			if t.Failed() {
				t.Fatalf("with %q in %s", content, path)
			}
			same := map[string]bool{
				"caches": len(h.Caches) == len(whole.Caches) || strings.Contains(path, "/cpu/"),
				"CPUs":   len(h.CPUs) == len(whole.CPUs) || strings.HasSuffix(path, "/cpu/online") || strings.HasSuffix(path, "/cpu/present"),
				"nodes":  len(h.Nodes) == len(whole.Nodes),
				"memory": h.Memory.Total == whole.Memory.Total || strings.HasSuffix(path, "/meminfo"),
				"kernel": h.Kernel.Release == whole.Kernel.Release || strings.HasSuffix(path, "/osrelease"),
				"vendor": h.Processor.Vendor == whole.Processor.Vendor || strings.HasSuffix(path, "/cpuinfo"),
				"misc":   h.Virtualization.Misc["sev"] == 5 || strings.HasSuffix(path, "/misc.capacity"),
			}
			for fact, ok := range same {
				if !ok {
					t.Errorf("%q in %s costs %s", content, path, fact)
				}
			}
		}
		if err := os.WriteFile(path, old, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if again := Read(rootsOf(tree)); jsonText(t, again) != jsonText(t, whole) {
		t.Error("the tree is not what it was")
	}
}

// files of a tree, links left out.
func files(t testing.TB, tree *sysfstest.Tree) []string {
	var paths []string
	err := filepath.WalkDir(tree.Root, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(paths)
	return paths
}

// FuzzTree puts any content into any two files of a machine: what is read holds
// together.
func FuzzTree(f *testing.F) {
	m := sysfstest.Machine{Packages: 2, Dies: 1, Clusters: 1, Cores: 2, Threads: 2, Performance: []int{0}, Capacity: map[int]int{0: 1}}.SplitNodes(2, 1<<30)
	m.Nodes[0].HugePages = []sysfstest.Pool{{SizeKB: 2048, Total: 1}}
	tree := m.Write(f)
	tree.File("sys/fs/cgroup/misc.capacity", "sev 5")
	tree.File("sys/module/kvm/parameters/nested", "1")
	paths := files(f, tree)
	for i := range paths {
		f.Add(uint16(i), "0-3,60000\n", uint16(i*7), "-1\n")
		f.Add(uint16(i), "9223372036854775808", uint16(i*3), "2-1")
	}
	f.Fuzz(func(t *testing.T, first uint16, one string, second uint16, other string) {
		for path, content := range map[string]string{paths[int(first)%len(paths)]: one, paths[int(second)%len(paths)]: other} {
			old, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			defer os.WriteFile(path, old, 0o644)
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		checkHost(t, Read(rootsOf(tree)))
	})
}

// FuzzMeminfo: no text of the machine's or a node's memory ends Read.
func FuzzMeminfo(f *testing.F) {
	f.Add("MemTotal: 1024 kB\nMemAvailable: 1 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
	f.Add("MemTotal: 18446744073709551615 kB\n")
	f.Add("Node 0 MemTotal: 18014398509481983 kB\nNode 0 MemFree:")
	f.Add("HugePages_Total: 0x10\n")
	tree := sysfstest.Empty(f, f.TempDir())
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(tree.Path("proc/meminfo"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		r := memoryReader{&reader{roots: rootsOf(tree)}}
		defer r.close()
		var m Memory
		r.meminfo(&m)
		if total, free := r.nodeMemory(r.proc("meminfo")); total%1024 != 0 || free%1024 != 0 || m.Total%1024 != 0 {
			t.Errorf("%d, %d, %+v: not all of it is in KiB", total, free, m)
		}
	})
}
