package draw

import (
	"fmt"
	"io"
	"strings"

	"github.com/vmlet/vmlet/sysfs"
)

// SVG draws the machine as a picture that stands alone: no scripts, no fonts, no
// links. It is light or dark as its viewer is. The error is the writer's.
func SVG(w io.Writer, h *sysfs.Host) error {
	p := &picture{model: newModel(h)}
	p.scale = scaleFor(p.root.cores())
	const margin = 28
	const least = 560
	title, machine := p.title(), p.machine()
	body := column(22, title, machine, p.below(max(title.w, machine.w, least)))
	c := new(canvas)
	width, height := max(body.w, least)+2*margin, body.h+2*margin
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 0 %[1]s %[2]s" role="img">`+"\n", num(width), num(height))
	fmt.Fprintf(c, "<title>%s</title>\n", escaped("Topology of "+p.name()))
	c.WriteString(style())
	c.rect(0, 0, width, height, 0, "bg", "")
	body.draw(c, box{margin, margin, body.w, body.h})
	c.WriteString("</svg>\n")
	_, err := w.Write(c.Bytes())
	return err
}

// picture draws one machine.
type picture struct {
	*model
	scale scale
	// seen are the legend's words, for what has been laid out.
	seen map[string]bool
}

// scale is how large things are drawn: smaller, the more of them there are.
type scale struct {
	// core is a core's width, cpu a CPU's height, font that of the CPU's number
	// (0: not written), bar a cache's height (0: first and second level not drawn).
	core, cpu, font, bar, gap float64
	// width is how wide the whole may become.
	width float64
	// abreast are CPUs of a core beside one another.
	abreast bool
}

func scaleFor(cores int) scale {
	switch {
	case cores <= 8:
		return scale{core: 132, cpu: 26, font: 11, bar: 20, gap: 8, width: 1180}
	case cores <= 32:
		return scale{core: 72, cpu: 22, font: 10, bar: 18, gap: 7, width: 1240}
	case cores <= 384:
		return scale{core: 31, cpu: 15, font: 9, bar: 6, gap: 4, width: 1420}
	case cores <= 1024:
		return scale{core: 16, cpu: 8, bar: 3, gap: 3, width: 1500}
	}
	return scale{core: 17, cpu: 8, gap: 3, width: 1640, abreast: true}
}

func (p *picture) see(what string) {
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.seen[what] = true
}

func (p *picture) name() string {
	if name := clean(p.host.Processor.ModelName); name != "" {
		return name
	}
	name := "Processor"
	if arch := clean(p.host.Architecture); arch != "" {
		name = arch + " processor"
	}
	if maker := clean(p.host.Processor.Vendor); maker != "" {
		name += " (" + maker + ")"
	}
	return name
}

// title is the processor's name, and below it what the machine has of each.
func (p *picture) title() block {
	h := p.host
	name := fit(p.name(), 1000, 22)
	system := joined(" · ", kernelName(h), clean(h.Architecture), guest(h))
	facts := strings.TrimPrefix(p.machineLine(), "Machine: ")
	facts = strings.ReplaceAll(facts, ", ", " · ")
	return column(2, label("s22 t", 28, 21, name), label("s13 d", 20, 12.5, facts), label("s13 d", 20, 12.5, system))
}

// machineGap is between the parts of the machine.
const machineGap = 16

// machine holds the packages, what memory has no CPUs, and what devices are attached to
// no node.
func (p *picture) machine() block {
	return column(machineGap, p.parts(p.root, p.scale.width)...)
}

// parts are an object's children and loose CPUs, in rows, and what is attached to it.
func (p *picture) parts(o *object, width float64) []block {
	var parts []block
	gap := p.scale.gap
	if len(o.children) > 0 {
		if o.children[0].kind <= kindCluster {
			gap = 14
		}
		parts = append(parts, p.children(o, width, gap))
	}
	if len(o.own) > 0 && o.kind != kindCore {
		parts = append(parts, p.loose(o, width))
	}
	if o.kind == kindMachine && len(p.memory) > 0 {
		parts = append(parts, p.grid(p.memory, width, 14))
	}
	if len(o.devices) > 0 && o.kind == kindMachine {
		wide := 0.0
		for _, b := range parts {
			wide = max(wide, b.w)
		}
		parts = append(parts, p.devices(o, max(min(wide, width), 2*chipWidth+70)))
	}
	return parts
}

// children lays out an object's children: boxes in a grid, smaller things in rows.
func (p *picture) children(o *object, width, gap float64) block {
	if o.children[0].kind <= kindNode {
		return p.grid(o.children, width, gap)
	}
	var blocks []block
	for _, c := range o.children {
		blocks = append(blocks, p.object(c, width))
	}
	return flow(width, gap, blocks)
}

func (p *picture) object(o *object, width float64) block {
	switch {
	case o.core != nil:
		return p.core(o)
	case o.cache != nil:
		return p.cache(o, width)
	case o.kind == kindNode:
		return p.node(o, width)
	}
	return p.group(o, width)
}

// grid puts boxes of equal width into rows. Of all numbers of columns it takes
// the one whose shape is nearest to a screen's.
func (p *picture) grid(objects []*object, width, gap float64) block {
	const shape = 1.7
	var best block
	bestOff := 0.0
	for _, columns := range []int{1, 2, 3, 4, 6, 8} {
		if columns > len(objects) {
			break
		}
		room := (width - gap*float64(columns-1)) / float64(columns)
		if columns > 1 && room < cardWidth {
			break
		}
		var blocks []block
		wide := 0.0
		for _, o := range objects {
			b := p.object(o, room)
			blocks, wide = append(blocks, b), max(wide, b.w)
		}
		if wide > room && columns > 1 {
			break
		}
		for i := range blocks {
			blocks[i].w = wide
		}
		b := flow(float64(columns)*(wide+gap), gap, blocks)
		off := max(b.w/(b.h*shape), b.h*shape/b.w)
		if len(objects)%columns != 0 {
			off *= 1.25
		}
		if best.draw == nil || off < bestOff {
			best, bestOff = b, off
		}
	}
	return best
}
