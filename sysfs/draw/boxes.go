package draw

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/vmlet/vmlet/sysfs"
)

// cardWidth is the least width of a NUMA node's box.
const cardWidth = 280

// group is a package, a die or a cluster: a box with a name.
func (p *picture) group(o *object, width float64) block {
	const margin = 14
	head := fmt.Sprintf("%s, %s", count(o.cores(), "core"), count(len(o.cpus), "CPU"))
	if o.kind == kindCluster {
		p.see("group")
		inner := column(6, append([]block{label("s10 d", 14, 10, o.label())}, p.parts(o, width-16)...)...)
		return inset(inner, "group", 8, 0)
	}
	heading := ends(label("s15 t", 22, 16, o.label()), label("s11 d e", 22, 11, head))
	inner := column(10, append([]block{heading}, p.parts(o, width-2*margin)...)...)
	return inset(inner, "pkg", margin, 0)
}

// node is a NUMA node's card, and what hangs below it.
func (p *picture) node(o *object, width float64) block {
	const margin = 12
	width = max(width, cardWidth)
	class := "node"
	if len(o.cpus) == 0 {
		class = "mem"
	}
	parts := append([]block{p.nodeHead(o)}, p.parts(o, width-2*margin)...)
	card := inset(column(10, parts...), class, margin, cardWidth)
	if len(o.devices) == 0 {
		return card
	}
	return column(0, rigid(card), p.devices(o, max(card.w, cardWidth)))
}

// nodeHead tells of a node's memory, in words and as a bar.
func (p *picture) nodeHead(o *object) block {
	n := o.node
	memory := "no memory"
	if n.Memory > 0 {
		memory = fmt.Sprintf("%s, %s free", size(n.Memory), size(n.MemoryFree))
	}
	switch {
	case len(o.cpus) == 0:
		memory = joined(" · ", memory, "no CPUs")
	case len(o.children) == 0: // they are drawn in another part
		memory = joined(" · ", memory, fit(cpuNumbers(o.cpus), 100, 11))
	}
	head := label("s12 t", 18, 12, "NUMA node "+strconv.Itoa(n.ID))
	lines := []block{ends(head, label("s11 d e", 18, 11, joined(" · ", memory, nodeState(n))))}
	if n.Memory > 0 {
		lines = append(lines, p.memoryBar(n))
	}
	if pages := hugePages(n.HugePages); pages != "" {
		lines = append(lines, block{cardWidth / 2, 14, func(c *canvas, in box) {
			c.text(in.x, in.y+10.6, "s10 d", fit("huge pages "+pages, in.w, 10))
		}})
	}
	return column(4, lines...)
}

// memoryBar shows a node's memory: huge pages taken and free, the rest used and free.
func (p *picture) memoryBar(n *sysfs.Node) block {
	const height = 10
	total := float64(n.Memory)
	var taken, spare float64
	for _, h := range n.HugePages {
		free := min(h.Free, h.Total)
		taken += float64(h.PageSize) * float64(h.Total-free)
		spare += float64(h.PageSize) * float64(free)
	}
	taken, spare = min(taken, total), min(spare, total)
	free := min(float64(n.MemoryFree), max(total-taken-spare, 0))
	used := max(total-taken-spare-free, 0)
	p.see("used")
	if taken+spare > 0 {
		p.see("huge")
	}
	return block{120, height, func(c *canvas, in box) {
		tip := fmt.Sprintf("%s free of %s", size(n.MemoryFree), size(n.Memory))
		c.rect(in.x, in.y, in.w, height, 3, "free", tip)
		for _, part := range []struct {
			class string
			bytes float64
		}{{"used", used}, {"hused", taken}, {"hfree", spare}} {
			if w := in.w * part.bytes / total; w >= 0.5 {
				c.rect(in.x, in.y, w, height, 3, part.class, tip)
				in.x += w
			}
		}
	}}
}

// cache is a bar above those who share it.
func (p *picture) cache(o *object, width float64) block {
	level := "l" + strconv.Itoa(min(max(o.cache.Level, 1), 3))
	height := p.scale.bar
	if level == "l3" {
		height = max(p.scale.bar, 15)
		if p.scale.abreast {
			height = 6
		}
		width -= 12
	}
	if height == 0 { // too many to draw
		parts := p.parts(o, width)
		return column(p.scale.gap, parts...)
	}
	p.see(level)
	bar, inner := p.bar(o, level, height), o
	if i := o.twin(); i != nil {
		bar, inner = p.twins(bar, p.bar(i, level, height)), i
	}
	b := column(min(p.scale.gap, 4), append([]block{bar}, p.parts(inner, width)...)...)
	if level == "l3" {
		return inset(b, "cache", 6, 0)
	}
	return b
}

// twin is the cache of instructions beside one of data.
func (o *object) twin() *object {
	if len(o.children) != 1 || len(o.own) > 0 || o.cache.Type != "data" {
		return nil
	}
	if t := o.children[0]; t.cache != nil && t.cache.Type == "instruction" && t.cache.Level == o.cache.Level {
		return t
	}
	return nil
}

func (p *picture) twins(data, instructions block) block {
	return block{2*max(data.w, instructions.w) + 2, data.h, func(c *canvas, in box) {
		half := (in.w - 2) / 2
		data.draw(c, box{in.x, in.y, half, in.h})
		instructions.draw(c, box{in.x + half + 2, in.y, half, in.h})
	}}
}

// bar is a cache, with as much of its name as there is room for.
func (p *picture) bar(o *object, class string, height float64) block {
	name := o.cacheLabel()
	short, _, _ := strings.Cut(name, " ")
	return block{4, height, func(c *canvas, in box) {
		c.rect(in.x, in.y, in.w, height, min(height/3, 4), class, fmt.Sprintf("%s (%s), %s", name, clean(o.cache.Type), cpuNumbers(o.cpus)))
		for _, text := range []string{name, short} {
			for font := min(math.Floor(height*0.6), 11); font >= 8; font-- {
				if textWidth(text, font) <= in.w-4 {
					c.text(in.x+in.w/2, in.y+height/2+font*0.36, fmt.Sprintf("s%d m k", int(font)), text)
					return
				}
			}
		}
	}}
}
