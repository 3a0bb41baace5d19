package draw

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vmlet/vmlet/sysfs"
)

// label names an object: "L2 1 MiB", "Core 3".
func (o *object) label() string {
	switch o.kind {
	case kindPackage, kindDie, kindNode:
		return o.kinds() + " " + strconv.Itoa(o.id)
	case kindCluster:
		return "Cluster " + strconv.Itoa(o.id)
	case kindCore:
		return strings.Replace(o.coreWord(), "ore", "ore "+strconv.Itoa(o.id), 1)
	}
	return o.cacheLabel()
}

// kinds names a chain of objects without their numbers: "L2 1 MiB + L1d 32 KiB + Core".
func (o *object) kinds() string {
	switch o.kind {
	case kindMachine:
		return "Machine"
	case kindPackage:
		return "Package"
	case kindDie:
		return "Die"
	case kindNode:
		return "NUMA node"
	case kindCore:
		return o.coreWord()
	}
	text := "Cluster"
	if o.cache != nil {
		text = o.cacheLabel()
	}
	if len(o.children) == 1 && len(o.own) == 0 {
		return text + " + " + o.children[0].kinds()
	}
	return text
}

func (o *object) cacheLabel() string {
	letter := ""
	switch o.cache.Type {
	case "data":
		letter = "d"
	case "instruction":
		letter = "i"
	}
	text := fmt.Sprintf("L%d%s", o.cache.Level, letter)
	if o.cache.Size > 0 {
		text += " " + size(o.cache.Size)
	}
	return text
}

// coreWord: "Core", "Core (performance)", "Core (capacity 446)".
func (o *object) coreWord() string {
	if kind := clean(o.core.Kind); kind != "" {
		return "Core (" + kind + ")"
	}
	if o.capacity > 0 {
		return fmt.Sprintf("Core (capacity %d)", o.capacity)
	}
	return "Core"
}

// signature is equal for objects that differ in their numbers alone.
func (o *object) signature() string {
	if o.cache == nil && o.core == nil && o.kind != kindCluster {
		return ""
	}
	var b strings.Builder
	o.sign(&b)
	return b.String()
}

func (o *object) sign(b *strings.Builder) {
	switch {
	case o.core != nil:
		b.WriteString(o.coreWord())
	case o.cache != nil:
		b.WriteString(o.cacheLabel())
	}
	for _, c := range o.own {
		b.WriteString("," + cpuState(c))
	}
	b.WriteByte('(')
	for _, c := range o.children {
		c.sign(b)
	}
	b.WriteByte(')')
}

// cpuState says what keeps a CPU from being used like any other; empty: nothing.
func cpuState(c *sysfs.CPU) string {
	switch {
	case !c.Online:
		return "offline"
	case c.Isolated && !c.Allowed:
		return "isolated, not allowed"
	case c.Isolated:
		return "isolated"
	case !c.Allowed:
		return "not allowed"
	}
	return ""
}

// cpusText names CPUs, or counts them, by their state: "CPUs 0-3; 4-5 isolated".
func cpusText(cpus []*sysfs.CPU, named bool) string {
	by := map[string]sysfs.IDList{}
	var states []string
	for _, c := range cpus {
		s := cpuState(c)
		if by[s] == nil {
			states = append(states, s)
		}
		by[s] = append(by[s], c.ID)
	}
	var parts []string
	for _, s := range states {
		if named {
			parts = append(parts, joined(" ", cpuNumbers(by[s]), s))
		} else {
			parts = append(parts, count(len(by[s]), joined(" ", s, "CPU")))
		}
	}
	if len(parts) == 0 {
		return "no CPU"
	}
	return strings.Join(parts, "; ")
}

func cpuNumbers(ids sysfs.IDList) string {
	if len(ids) == 1 {
		return "CPU " + ids.String()
	}
	return "CPUs " + ids.String()
}

// union sorts a list and drops what is listed twice.
func union(ids sysfs.IDList) sysfs.IDList {
	all := slices.Clone(ids)
	slices.Sort(all)
	return slices.Compact(all)
}
