package draw

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/vmlet/vmlet/sysfs"
)

// head writes what is so for the whole machine, one fact a line.
func (t *tree) head() {
	h := t.host
	facts := [][2]string{
		{"Processor", joined(", ", processorName(h), clean(h.Architecture))},
		{"Kernel", joined(", ", kernelName(h), guest(h))},
		{"Memory", memoryText(&h.Memory)},
		{"Huge pages", hugePages(h.HugePages)},
		{"Isolated", cpuList(h.CPUSets.Isolated)},
		{"Tickless", cpuList(h.CPUSets.NoHZFull)},
		{"Offline", cpuList(h.CPUSets.Offline)},
		{"Allowed", t.allowed()},
	}
	written := false
	for _, f := range facts {
		if f[1] != "" {
			t.line("", fmt.Sprintf("%-12s%s", f[0]+":", f[1]))
			written = true
		}
	}
	if written {
		t.line("", "")
	}
}

// processorName returns the model, or the vendor where no model is known.
func processorName(h *sysfs.Host) string {
	if name := clean(h.Processor.ModelName); name != "" {
		return name
	}
	return clean(h.Processor.Vendor)
}

func kernelName(h *sysfs.Host) string {
	if r := clean(h.Kernel.Release); r != "" {
		return "Linux " + r
	}
	return ""
}

func guest(h *sysfs.Host) string {
	if h.Virtualization.Guest {
		return "itself a virtual machine"
	}
	return ""
}

func memoryText(m *sysfs.Memory) string {
	var parts []string
	switch {
	case m.Total > 0 && m.Available > 0:
		parts = append(parts, fmt.Sprintf("%s (%s available)", size(m.Total), size(m.Available)))
	case m.Total > 0: // kernels before 3.14 don't tell what is available
		parts = append(parts, size(m.Total))
	}
	if m.SwapTotal > 0 {
		parts = append(parts, fmt.Sprintf("swap %s (%s free)", size(m.SwapTotal), size(m.SwapFree)))
	}
	if m.TransparentHugePages != "" {
		parts = append(parts, "transparent huge pages: "+clean(m.TransparentHugePages))
	}
	if m.KSM != nil && m.KSM.Run == 1 {
		parts = append(parts, "KSM runs")
	}
	return strings.Join(parts, ", ")
}

func cpuList(ids sysfs.IDList) string {
	if len(ids) == 0 {
		return ""
	}
	return cpuNumbers(ids)
}

// allowed tells of a cgroup that keeps something from this process.
func (t *tree) allowed() string {
	var kept sysfs.IDList
	for _, c := range t.host.CPUs {
		if c.Online && !c.Allowed {
			kept = append(kept, c.ID)
		}
	}
	var nodes sysfs.IDList
	for _, n := range t.host.Nodes {
		if n.Online && !n.Allowed {
			nodes = append(nodes, n.ID)
		}
	}
	var parts []string
	if len(kept) > 0 {
		parts = append(parts, "this process's cgroup keeps "+cpuNumbers(kept)+" from it")
	}
	if len(nodes) > 0 {
		parts = append(parts, "memory of NUMA node "+nodes.String()+" is kept from it")
	}
	return strings.Join(parts, "; ")
}

// nodeMemory is that of all NUMA nodes, in bytes.
func nodeMemory(h *sysfs.Host) (sum uint64) {
	for _, n := range h.Nodes {
		sum += n.Memory
	}
	return sum
}

// machineLine is the tree's root.
func (m *model) machineLine() string {
	h := m.host
	nodes := nodeMemory(h)
	memory := cmp.Or(h.Memory.Total, nodes)
	if len(h.CPUs) == 0 && memory == 0 {
		return "Machine: its CPUs and memory are unknown"
	}
	parts := []string{}
	for _, c := range []struct {
		n    int
		what string
	}{{len(h.Packages), "package"}, {len(h.Nodes), "NUMA node"}, {len(h.Cores), "core"}, {len(h.CPUs), "CPU"}} {
		if c.n > 0 {
			parts = append(parts, count(c.n, c.what))
		}
	}
	if memory > 0 {
		text := size(memory)
		if sysfs.NodeMemoryDiffers(memory, nodes) {
			text += fmt.Sprintf(" (its NUMA nodes together %s: the kernel says both)", size(nodes))
		}
		parts = append(parts, text)
	}
	return "Machine: " + strings.Join(parts, ", ")
}

// nodeState says what keeps a node from being used like any other; empty: nothing.
func nodeState(n *sysfs.Node) string {
	switch {
	case !n.Online:
		return "offline"
	case !n.Allowed:
		return "not allowed"
	}
	return ""
}

// maxNotes is how many notes a person would read.
const maxNotes = 20

// foot writes what the tree leaves out, and what could not be read.
func (t *tree) foot() {
	var notes []string
	if t.unlisted > 0 {
		notes = append(notes, fmt.Sprintf("%s not shown (bridges, controllers): see -o json", count(t.unlisted, "PCI device")))
	}
	if t.crossing > 0 {
		notes = append(notes, fmt.Sprintf("%s not shown, lying across others: see -o json", count(t.crossing, "part")))
	}
	if len(notes) > 0 {
		t.line("", "")
	}
	for _, n := range notes {
		t.line("", n)
	}
	if len(t.host.Notes) == 0 {
		return
	}
	t.line("", "\nNotes:")
	for i, n := range t.host.Notes {
		if i == maxNotes {
			t.line("  ", fmt.Sprintf("and %d more: see -o json", len(t.host.Notes)-maxNotes))
			break
		}
		t.line("  ", clean(n.Path)+": "+clean(n.Message))
	}
}
