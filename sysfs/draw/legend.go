package draw

import (
	"fmt"
	"strconv"
)

// below is what stands under the machine: how far the nodes are from one another,
// and what the colours mean.
func (p *picture) below(width float64) block {
	const gap = 48
	heat := p.heatMap()
	if heat.draw == nil {
		return p.legend(width)
	}
	return row(gap, heat, p.legend(width-heat.w-gap))
}

// legend explains what this picture shows, and no more.
func (p *picture) legend(width float64) block {
	entries := []struct{ seen, class, text string }{
		{"cpu", "cpu", p.cpuWord()}, {"eff", "eff", "CPU of an efficiency core"}, {"iso", "iso", "isolated CPU"},
		{"deny", "deny", "CPU not allowed by the cgroup"}, {"off", "off", "offline CPU"},
		{"l3", "l3", "L3 cache" + p.cacheSize(3)}, {"l2", "l2", "L2 cache" + p.cacheSize(2)},
		{"l1", "l1", "L1 caches" + p.cacheSize(1)},
		{"group", "group", "cluster of cores"},
		{"used", "used", "memory in use"}, {"used", "free", "free memory"},
		{"huge", "hused", "huge pages in use"}, {"huge", "hfree", "free huge pages"},
		{"gfx", "gfx", "graphics"}, {"acc", "acc", "accelerator"}, {"net", "net", "network"},
		{"sto", "sto", "storage, memory device"}, {"oth", "oth", "other device"},
		{"vf", "vf", "virtual function"}, {"vf", "vfv", "virtual function with VFIO"}, {"vf", "vfn", "virtual function not made"},
	}
	const wide, high = 200.0, 19.0
	var shown []block
	for _, e := range entries {
		if !p.seen[e.seen] {
			continue
		}
		shown = append(shown, block{wide, high, func(c *canvas, in box) {
			c.rect(in.x+0.5, in.y+4, 16, 11, 3, e.class, "")
			c.text(in.x+25, in.y+13.5, "s11 d", e.text)
		}})
	}
	if len(shown) == 0 {
		return nothing()
	}
	entered := flow(max(min(width, 4*wide), wide), 0, shown)
	keep := entered.w
	return rigid(column(6, label("s12 t", 16, 12, "Legend"), block{keep, entered.h, func(c *canvas, in box) {
		entered.draw(c, box{in.x, in.y, keep, entered.h})
	}}))
}

// cacheSize is the size of all caches of a level, if it is the same: on large
// machines there is no room to write it on each.
func (p *picture) cacheSize(level int) string {
	sizes := map[uint64]bool{}
	text := ""
	for _, c := range p.host.Caches {
		if c.Level == level {
			sizes[c.Size] = true
			text = ", " + size(c.Size)
		}
	}
	if len(sizes) != 1 || sizes[0] {
		return ""
	}
	return text + " each"
}

func (p *picture) cpuWord() string {
	if p.seen["eff"] {
		return "CPU of a performance core"
	}
	return "CPU"
}

// heatMap shows the distances between nodes; nothing if there is one node only,
// or so many that it would be larger than the machine.
func (p *picture) heatMap() block {
	ids := onlineNodes(p.host)
	const most = 64
	if len(ids) < 2 || len(ids) > most {
		return block{}
	}
	rows := map[int][]int{}
	least, greatest := 0, 0
	for _, n := range p.host.Nodes {
		rows[n.ID] = n.Distances
		for i, d := range n.Distances {
			if i < len(ids) && ids[i] != n.ID {
				if least == 0 || d < least {
					least = d
				}
				greatest = max(greatest, d)
			}
		}
	}
	if greatest <= 0 {
		return block{}
	}
	cell := 30.0
	if len(ids) > 8 {
		cell = max(240/float64(len(ids)), 6)
	}
	const head = 22
	side := head + cell*float64(len(ids))
	matrix := block{max(side, 150), side, func(c *canvas, in box) {
		x, y := in.x, in.y
		for i, from := range ids {
			at := head + cell*float64(i)
			if cell >= 14 {
				c.text(x+at+cell/2, y+head-7, "s10 m d", strconv.Itoa(from))
				c.text(x+head-8, y+at+cell/2+3.5, "s10 e d", strconv.Itoa(from))
			}
			for j, d := range rows[from] {
				if j < len(ids) {
					p.heatCell(c, x+head+cell*float64(j), y+at, cell, d, least, greatest, fmt.Sprintf("from node %d to node %d: %d", from, ids[j], d))
				}
			}
		}
	}}
	return column(6, label("s12 t", 16, 12, "NUMA distances"), matrix)
}

// heatCell is the warmer, the farther away.
func (p *picture) heatCell(c *canvas, x, y, side float64, d, least, greatest int, tip string) {
	warmth := 0.08
	if d >= least {
		warmth = 0.2 + 0.7*float64(d-least)/float64(max(greatest-least, 1))
	}
	fmt.Fprintf(c, `<g fill-opacity="%.2f">`, min(max(warmth, 0), 1))
	c.rect(x+1, y+1, side-2, side-2, min(side/6, 4), "heat", tip)
	c.WriteString("</g>\n")
	const font = 10
	if text := strconv.Itoa(d); textWidth(text, font) <= side {
		c.text(x+side/2, y+side/2+3.6, "s10 m t", text)
	}
}
