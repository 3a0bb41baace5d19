package draw

import (
	"fmt"
	"strconv"

	"github.com/vmlet/vmlet/sysfs"
)

// core is a core with its CPUs.
func (p *picture) core(o *object) block {
	s := p.scale
	var cpus []block
	for _, c := range o.own {
		cpus = append(cpus, p.cpu(c, s.cpu))
	}
	const margin = 3
	switch {
	case s.abreast: // thousands: no box around, and CPUs beside one another
		for i := range cpus {
			cpus[i].w = s.cpu
		}
		return row(1, cpus...)
	case s.font < 10:
		return inset(column(2, cpus...), "core", 2, s.core)
	}
	name := "Core " + strconv.Itoa(o.id)
	if o.capacity > 0 {
		name += " · " + strconv.Itoa(o.capacity)
	}
	parts := append([]block{label("s10 d", 16, 10, fit(name, s.core, 10))}, cpus...)
	return inset(column(margin, parts...), "core", 6, s.core)
}

// cpu is a CPU, coloured by its state, or else by its kind.
func (p *picture) cpu(cpu *sysfs.CPU, height float64) block {
	class, ink := cpuClass(cpu)
	p.see(class)
	return block{2, height, func(c *canvas, in box) {
		tip := ""
		if !p.scale.abreast {
			tip = joined(", ", fmt.Sprintf("CPU %d", cpu.ID), clean(cpu.Kind), cpuState(cpu), frequency(cpu))
		}
		c.rect(in.x, in.y, in.w, height, min(height/4, 4), class, tip)
		name, font := strconv.Itoa(cpu.ID), p.scale.font
		switch {
		case font == 0:
			return
		case font >= 10:
			name = "CPU " + name
		}
		if textWidth(name, font) > in.w {
			font = 8
		}
		if textWidth(name, font) <= in.w+1 {
			c.text(in.x+in.w/2, in.y+height/2+font*0.36, fmt.Sprintf("s%d m %s", int(font), ink), name)
		}
	}}
}

// cpuClass returns a CPU's class and that of the text on it.
func cpuClass(c *sysfs.CPU) (class, ink string) {
	switch {
	case !c.Online:
		return "off", "x"
	case !c.Allowed:
		return "deny", "t"
	case c.Isolated:
		return "iso", "w"
	case c.Kind == "efficiency":
		return "eff", "w"
	}
	return "cpu", "w"
}

func frequency(c *sysfs.CPU) string {
	if c.MaxFrequency == 0 {
		return ""
	}
	return "up to " + strconv.FormatFloat(float64(c.MaxFrequency)/1e9, 'f', 1, 64) + " GHz"
}

// loose are CPUs whose core isn't known, such as offline ones.
func (p *picture) loose(o *object, width float64) block {
	var cpus []block
	for _, c := range o.own {
		b := p.cpu(c, max(p.scale.cpu, 6))
		b.w = p.scale.core
		if p.scale.font < 10 {
			b.w = max(p.scale.core-4, 6)
		}
		cpus = append(cpus, b)
	}
	return flow(width, max(p.scale.gap, 2), cpus)
}
