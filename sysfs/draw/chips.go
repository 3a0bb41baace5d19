package draw

import (
	"fmt"
	"math"
	"strings"
)

const (
	chipWidth  = 250
	chipHeight = 40
)

// devices hang on a part by wires: one from its lower edge along the chips.
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
	return block{w, h, func(c *canvas, x, y, _ float64) {
		trunk := x + 20
		middle := func(r int) float64 { return y + stem + float64(r)*(chipHeight+gap) + chipHeight/2 }
		c.path("wire", fmt.Sprintf("M%s %sV%s", num(trunk), num(y), num(middle(rows-1))))
		for i, chip := range chips {
			left := trunk + arm + float64(i%columns)*(chipWidth+gap)
			m := middle(i / columns)
			from := left - gap
			if i%columns == 0 {
				from = trunk
			}
			c.path("wire", fmt.Sprintf("M%s %sH%s", num(from), num(m), num(left)))
			chip.draw(c, left, m-chipHeight/2, chipWidth)
		}
	}}
}

// chip is a device, or several alike: what it is by shape and colour, its names,
// and what a guest would need to know.
func (p *picture) chip(run []device) block {
	d := run[0]
	class := roleClass(d.role)
	p.see(class)
	title, second := chipText(run)
	return block{chipWidth, chipHeight, func(c *canvas, x, y, width float64) {
		tip := joined(", ", append([]string{d.name, d.address, d.ids}, d.facts()...)...)
		c.rect(x, y, width, chipHeight, 7, "dev", tip)
		c.rect(x+6, y+6, chipHeight-12, chipHeight-12, 6, class, d.role.String())
		c.path("ink", icon(d.role, x+6, y+6))
		room := width - chipHeight - 10
		c.text(x+chipHeight+2, y+17, "s11 b t", fit(title, room, 11.2))
		dots := p.functions(&d)
		c.text(x+chipHeight+2, y+31, "s9 d", fit(second, room-dots.w, 9))
		dots.draw(c, x+width-dots.w-8, y+chipHeight-16, dots.w)
	}}
}

// chipText: "NVIDIA 3D controller", and "41:00.0 · vfio-pci · group 12".
func chipText(run []device) (title, second string) {
	d := run[0]
	title = joined(" · ", strings.Join(d.names, " "), joined(" ", d.maker, d.name))
	if d.role == roleUSB {
		title = joined(" · ", joined(" ", d.names...), d.maker)
	}
	address := strings.TrimPrefix(d.address, "0000:")
	group := ""
	if d.group >= 0 {
		group = fmt.Sprintf("group %d", d.group)
		if d.others > 0 {
			group += fmt.Sprintf(" +%d", d.others)
		}
	}
	if n := len(run); n > 1 {
		title = fmt.Sprintf("%d × %s", n, joined(" ", d.maker, d.name))
		address += " … " + strings.TrimPrefix(run[n-1].address, "0000:")
		group = ""
	}
	driver := d.driver
	if driver == "" {
		driver = "no driver"
	}
	mediated := ""
	if d.mediated > 0 {
		mediated = fmt.Sprintf("%d mdev", d.mediated)
	}
	return title, joined(" · ", address, driver, group, mediated)
}

// functions are an SR-IOV device's virtual functions: a dot each, or numbers.
func (p *picture) functions(d *device) block {
	const dot, most = 5.0, 16
	if d.total <= 0 {
		return block{draw: func(*canvas, float64, float64, float64) {}}
	}
	p.see("vf")
	tip := fmt.Sprintf("%d of %d virtual functions, %d with VFIO", d.functions, d.total, d.handed)
	if d.total > most {
		text := fmt.Sprintf("%d/%d VFs", d.functions, d.total)
		return label("s9 b d", 12, 9, text)
	}
	columns := (d.total + 1) / 2
	return block{float64(columns) * (dot + 1), 2*dot + 1, func(c *canvas, x, y, _ float64) {
		for i := range d.total {
			class := "vfn"
			switch {
			case i < d.handed:
				class = "vfv"
			case i < d.functions:
				class = "vf"
			}
			c.rect(x+float64(i%columns)*(dot+1), y+float64(i/columns)*(dot+1), dot, dot, 1, class, tip)
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
