package draw

import (
	"fmt"
	"strconv"
)

// below is what stands under the machine: how far the nodes are from one another,
// and what the colours mean.
func (p *picture) below() block {
	legend := p.legend()
	if heat := p.heatMap(); heat.draw != nil {
		return row(48, heat, legend)
	}
	return legend
}

// legend explains what there is in this picture, and no more.
func (p *picture) legend() block {
	entries := []struct{ seen, class, text string }{
		{"cpu", "cpu", p.cpuWord()}, {"eff", "eff", "CPU of an efficiency core"}, {"iso", "iso", "isolated CPU"},
		{"deny", "deny", "CPU not allowed by the cgroup"}, {"off", "off", "offline CPU"},
		{"l3", "l3", "L3 cache"}, {"l2", "l2", "L2 cache"}, {"l1", "l1", "L1 caches (data, instructions)"},
		{"group", "group", "cluster of cores"},
		{"used", "used", "memory in use"}, {"used", "free", "free memory"},
		{"huge", "hused", "huge pages in use"}, {"huge", "hfree", "free huge pages"},
		{"gfx", "gfx", "graphics"}, {"acc", "acc", "accelerator"}, {"net", "net", "network"},
		{"sto", "sto", "storage, memory device"}, {"oth", "oth", "other device"},
		{"vf", "vf", "virtual function"}, {"vf", "vfv", "virtual function with VFIO"}, {"vf", "vfn", "virtual function not made"},
	}
	const wide, high, perColumn = 200.0, 19.0, 7
	var columns, column1 []block
	for _, e := range entries {
		if !p.seen[e.seen] {
			continue
		}
		column1 = append(column1, block{wide, high, func(c *canvas, x, y, _ float64) {
			c.rect(x+0.5, y+4, 16, 11, 3, e.class, "")
			c.text(x+25, y+13.5, "s11 d", e.text)
		}})
		if len(column1) == perColumn {
			columns, column1 = append(columns, column(0, column1...)), nil
		}
	}
	if len(column1) > 0 {
		columns = append(columns, column(0, column1...))
	}
	if len(columns) == 0 {
		return block{draw: func(*canvas, float64, float64, float64) {}}
	}
	return column(6, label("s12 t", 16, 12, "Legend"), row(6, columns...))
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
	matrix := block{max(side, 150), side, func(c *canvas, x, y, _ float64) {
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
	warmth := 0.06
	if d >= least {
		warmth = 0.22 + 0.68*float64(d-least)/float64(max(greatest-least, 1))
	}
	c.rect(x+1, y+1, side-2, side-2, min(side/6, 4), "free", "")
	fmt.Fprintf(c, `<g fill-opacity="%.2f">`, min(max(warmth, 0), 1))
	c.rect(x+1, y+1, side-2, side-2, min(side/6, 4), "heat", tip)
	c.WriteString("</g>\n")
	const font = 10
	if text := strconv.Itoa(d); textWidth(text, font) <= side {
		c.text(x+side/2, y+side/2+3.6, "s10 m t", text)
	}
}
