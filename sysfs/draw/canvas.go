package draw

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// canvas collects the elements of an SVG. Lengths are in its user units, which
// are CSS pixels.
type canvas struct{ bytes.Buffer }

// num writes a length with one decimal at most, so that files stay small.
func num(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

// escaped makes text fit for an element or an attribute. Characters that XML
// can't hold become U+FFFD.
func escaped(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a Buffer doesn't fail
	return b.String()
}

// rect draws a rectangle with corners of radius r. A tip is what a browser shows
// when the mouse is over it.
func (c *canvas) rect(x, y, w, h, r float64, class, tip string) {
	fmt.Fprintf(c, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"`, class, num(x), num(y), num(w), num(h))
	if r > 0 {
		fmt.Fprintf(c, ` rx="%s"`, num(r))
	}
	if tip == "" {
		c.WriteString("/>\n")
		return
	}
	fmt.Fprintf(c, "><title>%s</title></rect>\n", escaped(tip))
}

// text writes a line whose base is at y; class says size, weight and anchor.
func (c *canvas) text(x, y float64, class, s string) {
	if s != "" {
		fmt.Fprintf(c, "<text class=\"%s\" x=\"%s\" y=\"%s\">%s</text>\n", class, num(x), num(y), escaped(s))
	}
}

// path draws path data, written by the caller.
func (c *canvas) path(class, d string) {
	fmt.Fprintf(c, "<path class=\"%s\" d=\"%s\"/>\n", class, d)
}

// block is a part of the picture: the least size that it needs, and how to draw
// it into a box of at least that size.
type block struct {
	w, h float64
	draw func(c *canvas, in box)
}

// box is a place in the picture: its upper left corner and its size.
type box struct{ x, y, w, h float64 }

// column puts blocks below one another, all of them as wide as the column. The
// last one takes what height is left.
func column(gap float64, blocks ...block) block {
	var b block
	for i, part := range blocks {
		if i > 0 {
			b.h += gap
		}
		b.w = max(b.w, part.w)
		b.h += part.h
	}
	b.draw = func(c *canvas, in box) {
		bottom := in.y + in.h
		for i, part := range blocks {
			h := part.h
			if i == len(blocks)-1 {
				h = max(h, bottom-in.y)
			}
			part.draw(c, box{in.x, in.y, in.w, h})
			in.y += h + gap
		}
	}
	return b
}

// flow puts blocks beside one another, in as many rows as a width needs. Blocks
// of equal width are spread evenly over the rows. What width is left when it is
// drawn goes to the blocks.
func flow(width, gap float64, blocks []block) block {
	rows := wrapped(width, gap, blocks)
	longest := 1
	for _, r := range rows {
		longest = max(longest, len(r))
	}
	b := table(gap, rows, 0)
	return block{b.w, b.h, func(c *canvas, in box) {
		table(gap, rows, max(in.w-b.w, 0)/float64(longest)).draw(c, in)
	}}
}

// table puts rows below one another, with each block wider than it need be.
func table(gap float64, rows [][]block, extra float64) block {
	var lines []block
	for _, r := range rows {
		wider := slices.Clone(r)
		for i := range wider {
			wider[i].w += extra
		}
		lines = append(lines, row(gap, wider...))
	}
	return column(gap, lines...)
}

// wrapped cuts blocks into rows.
func wrapped(width, gap float64, blocks []block) [][]block {
	var rows [][]block
	perRow := evenly(width, gap, blocks)
	used := 0.0
	for _, b := range blocks {
		last := len(rows) - 1
		if last < 0 || used+gap+b.w > width+0.01 || perRow > 0 && len(rows[last]) == perRow {
			rows = append(rows, nil)
			last, used = last+1, -gap
		}
		rows[last] = append(rows[last], b)
		used += gap + b.w
	}
	return rows
}

// evenly returns how many blocks of equal width make rows of equal length; 0 if
// they aren't of equal width.
func evenly(width, gap float64, blocks []block) int {
	if len(blocks) == 0 {
		return 0
	}
	for _, b := range blocks {
		if math.Abs(b.w-blocks[0].w) > 0.01 {
			return 0
		}
	}
	fit := max(int((width+gap+0.01)/(blocks[0].w+gap)), 1)
	for n := min(fit, len(blocks)); 2*n > fit && n > 1; n-- {
		if len(blocks)%n == 0 {
			return n
		}
	}
	rows := (len(blocks) + fit - 1) / fit
	return (len(blocks) + rows - 1) / rows
}

// row puts blocks beside one another, all of them as high as the row.
func row(gap float64, blocks ...block) block {
	var b block
	for i, part := range blocks {
		if i > 0 {
			b.w += gap
		}
		b.w += part.w
		b.h = max(b.h, part.h)
	}
	b.draw = func(c *canvas, in box) {
		for _, part := range blocks {
			part.draw(c, box{in.x, in.y, part.w, in.h})
			in.x += part.w + gap
		}
	}
	return b
}

// ends puts one block at the left, the other at the right.
func ends(left, right block) block {
	b := row(14, left, right)
	b.draw = func(c *canvas, in box) {
		left.draw(c, in)
		right.draw(c, box{in.x + in.w - right.w, in.y, right.w, in.h})
	}
	return b
}

// rigid keeps a block from growing in height.
func rigid(b block) block {
	return block{b.w, b.h, func(c *canvas, in box) { b.draw(c, box{in.x, in.y, in.w, b.h}) }}
}

// nothing takes no place.
func nothing() block { return block{draw: func(*canvas, box) {}} }

// inset puts a block into a box with a margin, at least of a width.
func inset(b block, class string, margin, minimum float64) block {
	return block{max(b.w+2*margin, minimum), b.h + 2*margin, func(c *canvas, in box) {
		c.rect(in.x, in.y, in.w, in.h, min(margin, 10), class, "")
		b.draw(c, box{in.x + margin, in.y + margin, in.w - 2*margin, in.h - 2*margin})
	}}
}

// label is a line of text of a height, from the left, or to the right if its
// class has an e. Its width is an estimate: what a font makes of it is for the
// viewer to know.
func label(class string, height, fontSize float64, s string) block {
	return block{textWidth(s, fontSize), height, func(c *canvas, in box) {
		x := in.x
		if strings.HasSuffix(class, " e") {
			x += in.w
		}
		c.text(x, in.y+height/2+fontSize*0.36, class, s)
	}}
}

// textWidth estimates: an average letter is six tenths of the font's size wide,
// East Asian ones a whole.
func textWidth(s string, fontSize float64) float64 {
	w := 0.0
	for _, r := range s {
		if r >= 0x1100 && r != '…' && r != '→' {
			w += 1.05
		} else {
			w += 0.6
		}
	}
	return w * fontSize
}

// fit cuts text to a width.
func fit(s string, width, fontSize float64) string {
	for n := len([]rune(s)); n > 0 && textWidth(s, fontSize) > width; n-- {
		s = shorten(s, n-1)
	}
	return s
}
