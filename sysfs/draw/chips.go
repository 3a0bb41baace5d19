package draw

import (
	"fmt"
	"math"
	"strings"
)

const (
	chipWidth  = 250
	chipHeight = 40
	widestChip = 340
)

// devices are attached to a part by wires: one from its lower edge along the chips.
func (p *picture) devices(o *object, width float64) block {
	const stem, gap, arm = 14.0, 8.0, 18.0
	var chips []block
	for _, run := range runs(o.devices, func(a, b device) bool { return a.alike(&b) }) {
		if len(run) >= foldDevices {
			chips = append(chips, p.chip(run))
			continue
		}
		for i := range run {
			chips = append(chips, p.chip(run[i:i+1]))
		}
	}
	columns := max(int((width-arm-20+gap)/(chipWidth+gap)), 1)
	columns = min(columns, len(chips))
	rows := (len(chips) + columns - 1) / columns
	w := arm + 20 + float64(columns)*(chipWidth+gap) - gap
	h := stem + float64(rows)*(chipHeight+gap) - gap
	// What is attached to no node is attached to the one part that the machine has. Where it
	// has several, a wire to the nearest would say that it is attached to that.
	above, loose := 0.0, false
	if o.kind == kindMachine {
		above, loose = machineGap, len(o.children)+len(p.memory) > 1
	}
	return block{w, h, func(c *canvas, in box) {
		trunk := in.x + 20
		middle := func(r int) float64 { return in.y + stem + float64(r)*(chipHeight+gap) + chipHeight/2 }
		top := in.y - above
		if loose {
			top = middle(0)
		}
		if top < middle(rows-1) {
			c.path("wire", fmt.Sprintf("M%s %sV%s", num(trunk), num(top), num(middle(rows-1))))
		}
		wide := min((in.w-arm-20+gap)/float64(columns)-gap, widestChip)
		for i, chip := range chips {
			left := trunk + arm + float64(i%columns)*(wide+gap)
			m := middle(i / columns)
			from := left - gap
			if i%columns == 0 {
				from = trunk
			}
			if i > 0 || !loose || rows > 1 {
				c.path("wire", fmt.Sprintf("M%s %sH%s", num(from), num(m), num(left)))
			}
			chip.draw(c, box{left, m - chipHeight/2, wide, chipHeight})
		}
	}}
}

// chip is a device, or several alike: what it is by shape and colour, its names,
// and what a guest would need to know.
func (p *picture) chip(run []device) block {
	d := run[0]
	class := roleClass(d.role)
	p.see(class)
	dots := p.functions(&d)
	return block{chipWidth, chipHeight, func(c *canvas, in box) {
		tip := joined(", ", append([]string{d.name, d.address, d.ids}, d.facts()...)...)
		c.rect(in.x, in.y, in.w, chipHeight, 7, "dev", tip)
		c.rect(in.x+6, in.y+6, chipHeight-12, chipHeight-12, 6, class, d.role.String())
		c.path("ink", icon(d.role, in.x+6, in.y+6))
		const font, small = 11.5, 9
		left, room := in.x+chipHeight+2, in.w-chipHeight-10
		dots.draw(c, box{in.x + in.w - dots.w - 8, in.y + 7, dots.w, dots.h})
		c.text(left, in.y+17, "s11 b t", fittest(chipTitles(run), room-dots.w-4, font))
		c.text(left, in.y+31, "s9 d", fittest(chipFacts(run), room, small))
	}}
}

// fittest returns the first text that fits a width, or the last one cut to it.
func fittest(texts []string, width, fontSize float64) string {
	for _, s := range texts {
		if textWidth(s, fontSize) <= width {
			return s
		}
	}
	return fit(texts[len(texts)-1], width, fontSize)
}

// chipTitles: "eth0 · Mellanox Ethernet controller", then shorter ones.
func chipTitles(run []device) []string {
	d := run[0]
	names, what := strings.Join(d.names, " "), joined(" ", d.maker, d.name)
	switch {
	case len(run) > 1:
		what = fmt.Sprintf("%d × %s", len(run), what)
		return []string{what}
	case d.role == roleUSB:
		return []string{joined(" · ", names, d.maker), joined("", names)}
	case names == "":
		return []string{what, d.name}
	}
	return []string{names + " · " + what, joined(" · ", names, d.maker), names}
}

// chipFacts: "41:00.0 · vfio-pci · IOMMU group 12", then shorter ones.
func chipFacts(run []device) []string {
	d := run[0]
	address := strings.TrimPrefix(d.address, "0000:")
	driver := d.driver
	if driver == "" {
		driver = "no driver"
	}
	if n := len(run); n > 1 {
		return []string{joined(" · ", address+" … "+strings.TrimPrefix(run[n-1].address, "0000:"), driver)}
	}
	group := ""
	if d.group >= 0 {
		group = fmt.Sprintf("group %d", d.group)
		if d.others > 0 {
			group += fmt.Sprintf(" (+%d)", d.others)
		}
	}
	mediated := ""
	if d.mediated > 0 {
		mediated = fmt.Sprintf("%d mdev", d.mediated)
	}
	return []string{joined(" · ", address, driver, joined(" ", iommu(group), group), mediated), joined(" · ", address, driver, group, mediated)}
}

func iommu(group string) string {
	if group == "" {
		return ""
	}
	return "IOMMU"
}

// functions are an SR-IOV device's virtual functions: a dot each, or numbers.
func (p *picture) functions(d *device) block {
	const dot, most = 5.0, 16
	if d.total <= 0 {
		return nothing()
	}
	p.see("vf")
	tip := fmt.Sprintf("%d of %d virtual functions, %d with VFIO", d.functions, d.total, d.handed)
	if d.total > most {
		text := fmt.Sprintf("%d/%d VFs", d.functions, d.total)
		return label("s9 b d", 12, 9, text)
	}
	columns := (d.total + 1) / 2
	return block{float64(columns) * (dot + 1), 2*dot + 1, func(c *canvas, in box) {
		for i := range d.total {
			class := "vfn"
			switch {
			case i < d.handed:
				class = "vfv"
			case i < d.functions:
				class = "vf"
			}
			c.rect(in.x+float64(i%columns)*(dot+1), in.y+float64(i/columns)*(dot+1), dot, dot, 1, class, tip)
		}
	}}
}

func roleClass(r role) string {
	switch r {
	case roleGraphics:
		return "gfx"
	case roleAccelerator:
		return "acc"
	case roleNetwork:
		return "net"
	case roleStorage, roleMemory:
		return "sto"
	}
	return "oth"
}

// icon returns a shape for a role in a square of 28: a fan, a bolt, a plug, a
// stick of memory, a chip.
func icon(r role, x, y float64) string {
	at := func(dx, dy float64) string { return num(x+dx) + " " + num(y+dy) }
	line := func(points ...float64) string {
		d := "M" + at(points[0], points[1])
		for i := 2; i+1 < len(points); i += 2 {
			d += "L" + at(points[i], points[i+1])
		}
		return d
	}
	switch r {
	case roleGraphics:
		d := fmt.Sprintf("M%sa8 8 0 1 0 16 0a8 8 0 1 0 -16 0", at(6, 14))
		for i := range 3 {
			a := float64(i) * 2 * math.Pi / 3
			d += line(14+2*math.Sin(a), 14-2*math.Cos(a), 14+7*math.Sin(a+0.5), 14-7*math.Cos(a+0.5))
		}
		return d
	case roleAccelerator:
		return line(16, 5, 8, 15, 14, 15, 12, 23, 20, 13, 14, 13, 16, 5)
	case roleNetwork:
		return line(6, 8, 22, 8, 22, 21, 6, 21, 6, 8) + line(10, 21, 10, 17, 18, 17, 18, 21) +
			line(10, 8, 10, 11) + line(14, 8, 14, 11) + line(18, 8, 18, 11)
	case roleStorage:
		return line(4, 10, 24, 10, 24, 19, 4, 19, 4, 10) + line(8, 13, 8, 16) + line(12, 13, 12, 16) + line(16, 13, 20, 13, 20, 16, 16, 16, 16, 13)
	case roleMemory:
		return line(4, 9, 24, 9, 24, 18, 4, 18, 4, 9) + line(7, 21, 7, 18) + line(12, 21, 12, 18) + line(17, 21, 17, 18) + line(21, 21, 21, 18)
	case roleUSB:
		return line(14, 23, 14, 5) + line(14, 19, 8, 15, 8, 11) + line(14, 16, 20, 12, 20, 9)
	}
	return line(8, 8, 20, 8, 20, 20, 8, 20, 8, 8) + line(5, 11, 8, 11) + line(5, 17, 8, 17) + line(20, 11, 23, 11) + line(20, 17, 23, 17)
}
