package sysfs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// tool runs a program that knows the machine too; without it the test is skipped.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"LC_ALL=C"}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v", name, args, err)
	}
	return string(out)
}

// TestLscpu compares this machine with what lscpu says of it.
func TestLscpu(t *testing.T) { compareLscpu(t, Read(Roots{})) }

// TestLscpuMachines compares the made-up machines with what lscpu reads in their
// trees.
func TestLscpuMachines(t *testing.T) {
	for _, m := range append(machines(), large()) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if m.odd != "" {
				t.Skip(m.odd)
			}
			tree := m.made.Write(t)
			if m.change != nil {
				m.change(tree)
			}
			compareLscpu(t, Read(rootsOf(tree)), "-s", tree.Root)
		})
	}
}

func compareLscpu(t *testing.T, h *Host, root ...string) {
	compareLscpuCPUs(t, h, root)
	compareLscpuColumns(t, h, root)
	compareLscpuCaches(t, h, root)
}

// compareLscpuCPUs: the same CPUs are there and online, in the same nodes.
func compareLscpuCPUs(t *testing.T, h *Host, root []string) {
	var said struct {
		CPUs []struct {
			CPU    int
			Node   *int
			Online bool
		}
	}
	columns := "-e=CPU,ONLINE"
	if len(h.Nodes) > 0 {
		columns += ",NODE"
	}
	out := tool(t, "lscpu", append(root, "-J", "-a", columns)...)
	// It writes null for a node that it does not know as "-".
	if err := json.Unmarshal([]byte(strings.ReplaceAll(out, `"node": -`, `"node": null`)), &said); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(said.CPUs) != len(h.CPUs) {
		t.Fatalf("lscpu has %d CPUs, Read %d", len(said.CPUs), len(h.CPUs))
	}
	for i, cpu := range said.CPUs {
		got := h.CPUs[i]
		if got.ID != cpu.CPU || got.Online != cpu.Online {
			t.Errorf("lscpu has %+v, Read %+v", cpu, got)
		}
		// lscpu knows the node only of CPUs that are online.
		if cpu.Node != nil && got.Node != *cpu.Node {
			t.Errorf("CPU %d: lscpu has it in node %d, Read in %d", cpu.CPU, *cpu.Node, got.Node)
		}
	}
}

// compareLscpuColumns: cores, packages and caches have the same CPUs. lscpu
// numbers them itself, so numbers are compared by what is in them.
func compareLscpuColumns(t *testing.T, h *Host, root []string) {
	out := tool(t, "lscpu", append(root, "-p=CPU,CORE,SOCKET,CACHE")...)
	var names []string
	same := map[string]map[string]string{}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# CPU,"); ok {
			names = strings.Split("CPU,"+rest, ",")
		}
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Split(line, ",")
		id, err := strconv.Atoi(fields[0])
		if err != nil || len(fields) != len(names) {
			t.Fatalf("lscpu says %q with columns %v", line, names)
		}
		for i, name := range names[1:] {
			if name == "" {
				continue
			}
			got, want := column(h, name, id), fields[i+1]
			if same[name] == nil {
				same[name] = map[string]string{}
			}
			for _, pair := range []struct{ from, to string }{{"lscpu " + want, got}, {"Read " + got, want}} {
				if other, ok := same[name][pair.from]; ok && other != pair.to {
					t.Errorf("CPU %d: %s of %s is %q here and %q elsewhere", id, name, pair.from, pair.to, other)
				}
				same[name][pair.from] = pair.to
			}
			if (got == "") != (want == "") {
				t.Errorf("CPU %d: %s is %q by lscpu, %q by Read", id, name, want, got)
			}
		}
	}
}

// column is what Read has for a column of lscpu's: a number, or "".
func column(h *Host, name string, id int) string {
	cpu := h.byID(id)
	number := -1
	switch name {
	case "Core":
		number = cpu.Core
	case "Socket":
		number = cpu.Package
	default:
		for _, cache := range h.Caches {
			if cacheName(cache) == name && cache.CPUs.Has(id) {
				number = cache.ID
			}
		}
	}
	if number < 0 {
		return ""
	}
	return strconv.Itoa(number)
}

func cacheName(c Cache) string {
	suffix := map[string]string{"data": "d", "instruction": "i"}[c.Type]
	return fmt.Sprintf("L%d%s", c.Level, suffix)
}

// compareLscpuCaches: the same kinds of cache, of the same sizes and shapes. What
// lscpu says of one it says of the first of the kind.
func compareLscpuCaches(t *testing.T, h *Host, root []string) {
	var said struct {
		Caches []struct {
			Name, Type    string
			OneSize       string `json:"one-size"`
			AllSize       string `json:"all-size"`
			Ways, Sets    *int
			Level         int
			CoherencySize *int `json:"coherency-size"`
		}
	}
	out := tool(t, "lscpu", append(root, "-C", "-J", "-B")...)
	if strings.TrimSpace(out) == "" {
		out = "{}"
	}
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	kinds := map[string][]Cache{}
	for _, cache := range h.Caches {
		kinds[cacheName(cache)] = append(kinds[cacheName(cache)], cache)
	}
	for _, want := range said.Caches {
		got := kinds[want.Name]
		delete(kinds, want.Name)
		if len(got) == 0 {
			t.Errorf("lscpu has %+v, Read has none", want)
			continue
		}
		all := uint64(0)
		for _, cache := range got {
			all += cache.Size
		}
		first := got[0]
		if strconv.FormatUint(all, 10) != cmp.Or(want.AllSize, "0") || strconv.FormatUint(first.Size, 10) != cmp.Or(want.OneSize, "0") ||
			first.Ways != value(want.Ways) || first.Sets != value(want.Sets) || first.LineSize != value(want.CoherencySize) ||
			first.Level != want.Level || !strings.EqualFold(first.Type, want.Type) {
			t.Errorf("lscpu has %+v (all %s), Read %+v (all %d)", want, want.AllSize, first, all)
		}
	}
	for name := range kinds {
		t.Errorf("Read has a cache %s, lscpu has none", name)
	}
}

func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// TestNumactl compares this machine's nodes with what numactl says of them.
func TestNumactl(t *testing.T) {
	out := tool(t, "numactl", "-H")
	h := Read(Roots{})
	if strings.HasPrefix(out, "No NUMA") {
		if len(h.Nodes) > 0 {
			t.Errorf("numactl has no nodes, Read %+v", h.Nodes)
		}
		return
	}
	rows := map[string][]string{}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			rows[strings.TrimSpace(key)] = strings.Fields(value)
		}
	}
	var ids []string
	for _, node := range h.Nodes {
		if node.Online {
			ids = append(ids, strconv.Itoa(node.ID))
		}
	}
	if got := rows["available"][0]; got != strconv.Itoa(len(ids)) {
		t.Errorf("numactl has %s nodes, Read %v", got, ids)
	}
	for _, node := range h.Nodes {
		if !node.Online {
			continue
		}
		var online []string
		for _, id := range node.CPUs {
			if h.byID(id).Online {
				online = append(online, strconv.Itoa(id))
			}
		}
		name := fmt.Sprintf("node %d", node.ID)
		if got := rows[name+" cpus"]; !slices.Equal(got, online) {
			t.Errorf("%s: numactl has CPUs %v, Read %v", name, got, online)
		}
		if got := rows[name+" size"][0]; got != strconv.FormatUint(node.Memory>>20, 10) {
			t.Errorf("%s: numactl has %s MB, Read %d bytes", name, got, node.Memory)
		}
		if got := strings.Join(rows[strconv.Itoa(node.ID)], " "); got != strings.Trim(fmt.Sprint(node.Distances), "[]") {
			t.Errorf("%s: numactl has distances %s, Read %v", name, got, node.Distances)
		}
	}
}

// TestCaptured compares trees that were captured on other machines with what
// lscpu reads in them: the folders in the one that VMLET_TREES names, each with
// its sys and proc. lscpu differs, and not for a fault of either, where it takes
// caches from /proc/cpuinfo (s390x's shared ones) or from files of old (SPARC),
// and where it counts the cores of each kind of arm64 processor by themselves.
func TestCaptured(t *testing.T) {
	folder := os.Getenv("VMLET_TREES")
	if folder == "" {
		t.Skip("VMLET_TREES names no folder of captured trees")
	}
	trees, err := filepath.Glob(filepath.Join(folder, "*", "proc"))
	if err != nil || len(trees) == 0 {
		t.Fatalf("no trees in %s: %v", folder, err)
	}
	for _, proc := range trees {
		root := filepath.Dir(proc)
		t.Run(filepath.Base(root), func(t *testing.T) {
			h := Read(Roots{Sys: filepath.Join(root, "sys"), Proc: proc, Dev: filepath.Join(root, "dev")})
			t.Logf("%s: %+v, %d packages, %d dies, %d cores; notes %v", h.Architecture, h.Processor, len(h.Packages), len(h.Dies), len(h.Cores), h.Notes)
			checkHost(t, h)
			compareLscpu(t, h, "-s", root)
		})
	}
}
