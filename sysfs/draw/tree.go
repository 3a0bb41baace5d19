package draw

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/vmlet/vmlet/sysfs"
)

// foldFrom is how many cores a machine has from which like parts share a line.
const foldFrom = 17

// foldDevices is how many like devices on a node share a line.
const foldDevices = 4

// Tree writes the machine as text, each part under what holds it. On machines of
// many cores, parts that are alike share a line. The error is the writer's.
func Tree(w io.Writer, h *sysfs.Host) error {
	m := newModel(h)
	t := &tree{model: m, fold: m.root.cores() >= foldFrom}
	t.head()
	t.line("", m.machineLine())
	t.object(m.root, "", true)
	t.foot()
	_, err := w.Write(t.b.Bytes())
	return err
}

type tree struct {
	*model
	b    bytes.Buffer
	fold bool
}

func (t *tree) line(prefix, text string) {
	t.b.WriteString(prefix + text + "\n")
}

// branch is a line of the tree and what comes below it.
type branch struct {
	text  string
	below func(prefix string)
}

func (t *tree) branches(prefix string, list []branch) {
	for i, b := range list {
		knot, rail := "├─ ", "│  "
		if i == len(list)-1 {
			knot, rail = "└─ ", "   "
		}
		t.line(prefix+knot, b.text)
		if b.below != nil {
			b.below(prefix + rail)
		}
	}
}

// object writes what is below an object. Where told is false, an object further
// out has said which CPUs these are.
func (t *tree) object(o *object, prefix string, told bool) {
	var list []branch
	for _, run := range t.runs(o.children) {
		last, text := chain(run[0])
		list = append(list, branch{t.describe(run, last, text, told), func(prefix string) {
			t.object(last, prefix, told && len(run) == 1)
		}})
	}
	if o.kind != kindCore && len(o.own) > 0 {
		list = append(list, branch{cpusText(o.own, told), nil})
	}
	if o.kind == kindMachine {
		for _, n := range t.memory {
			list = append(list, branch{t.nodeText(n), func(prefix string) { t.object(n, prefix, told) }})
		}
	}
	list = append(list, t.deviceBranches(o)...)
	t.branches(prefix, list)
}

// runs returns the children in stretches that share a line. Packages and nodes
// never do: they have memory and devices of their own.
func (t *tree) runs(children []*object) [][]*object {
	return runs(children, func(a, b *object) bool {
		return t.fold && a.kind > kindNode && b.kind > kindNode && a.signature() == b.signature()
	})
}

// chain joins an object with what is all that it holds, as in "L2 1 MiB + L1d
// 32 KiB + Core 3", and returns the innermost.
func chain(o *object) (*object, string) {
	text := o.label()
	for o.kind > kindNode && len(o.children) == 1 && len(o.own) == 0 {
		o = o.children[0]
		text += " + " + o.label()
	}
	return o, text
}

// describe is the line of a run of like objects, or of one.
func (t *tree) describe(run []*object, last *object, text string, told bool) string {
	o := run[0]
	if len(run) > 1 {
		return t.describeRun(run, last, told)
	}
	switch o.kind {
	case kindPackage, kindDie:
		return fmt.Sprintf("%s: %s, %s", text, count(o.cores(), "core"), count(len(o.cpus), "CPU"))
	case kindNode:
		return t.nodeText(o)
	}
	if last.kind == kindCore {
		if !told {
			return text + ", " + cpusText(last.own, false)
		}
		return text + ": " + cpusText(last.own, true)
	}
	if !told {
		return text
	}
	return text + ": " + cpuNumbers(o.cpus)
}

// describeRun: "8 × L2 1 MiB + Core, 2 CPUs each: CPUs 0-15".
func (t *tree) describeRun(run []*object, last *object, told bool) string {
	text := fmt.Sprintf("%d × %s", len(run), run[0].kinds())
	if last.kind == kindCore {
		text += ", " + cpusText(last.own, false)
		if len(last.own) != 1 {
			text += " each"
		}
	} else {
		text += fmt.Sprintf(", %s each", count(run[0].cores(), "core"))
	}
	if !told {
		return text
	}
	const few = 4
	var lists []string
	var all sysfs.IDList
	for _, o := range run {
		lists = append(lists, o.cpus.String())
		all = append(all, o.cpus...)
	}
	if last.kind == kindCore || len(run) > few {
		return text + ": " + cpuNumbers(union(all))
	}
	return text + ": CPUs " + strings.Join(lists, " | ")
}

func (t *tree) nodeText(o *object) string {
	n := o.node
	text := "NUMA node " + strconv.Itoa(n.ID) + ": "
	parts := []string{"no memory"}
	if n.Memory > 0 {
		parts = []string{fmt.Sprintf("%s (%s free)", size(n.Memory), size(n.MemoryFree))}
	}
	switch {
	case len(o.cpus) > 0:
		parts = append(parts, cpuNumbers(o.cpus))
	case n.Memory > 0:
		parts = append(parts, "memory only, no CPUs")
	default:
		parts = append(parts, "no CPUs")
	}
	parts = append(parts, nodeState(n))
	if pages := hugePages(n.HugePages); pages != "" {
		parts = append(parts, "huge pages "+pages)
	}
	if d := distances(t.host, n); d != "" {
		parts = append(parts, "distance "+d)
	}
	return text + joined("; ", parts...)
}

func (t *tree) deviceBranches(o *object) []branch {
	var list []branch
	for _, run := range runs(o.devices, func(a, b device) bool { return a.alike(&b) }) {
		if len(run) >= foldDevices {
			list = append(list, branch{text: foldedDevices(run)})
			continue
		}
		for _, d := range run {
			id := joined(" ", d.maker, d.ids)
			text := fmt.Sprintf("%s %s (%s): ", d.name, d.address, id)
			list = append(list, branch{text: text + joined(", ", append([]string{strings.Join(d.names, ", ")}, d.facts()...)...)})
		}
	}
	return list
}

// foldedDevices: "8 × NVMe controller (144d:a80a) 0000:41:00.0 … 0000:48:00.0: …".
func foldedDevices(run []device) string {
	first, last := run[0], run[len(run)-1]
	var names []string
	var groups sysfs.IDList
	for _, d := range run {
		names = append(names, d.names...)
		if d.group >= 0 {
			groups = append(groups, d.group)
		}
	}
	const few = 8
	if len(names) > few {
		names = []string{names[0], "…", names[len(names)-1]}
	}
	first.group = -1
	facts := append([]string{strings.Join(names, " ")}, first.facts()...)
	if len(groups) > 0 {
		text := "IOMMU groups " + union(groups).String()
		if first.others > 0 {
			text += fmt.Sprintf(" (each shared with %s)", count(first.others, "other"))
		}
		facts = append(facts, text)
	}
	return fmt.Sprintf("%d × %s %s … %s (%s): %s", len(run), first.name, first.address, last.address,
		joined(" ", first.maker, first.ids), joined(", ", facts...))
}
