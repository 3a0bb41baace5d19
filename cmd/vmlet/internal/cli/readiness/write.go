package readiness

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/output"
)

// Text is broken at a terminal's width, in columns, but for one that is wider or
// narrower than these; a longer word stays whole.
const narrowest, widest = 60, 100

// page is a report as it is written.
type page struct {
	strings.Builder
	width int
}

// Write writes a report for people, to a terminal of that width; 0: it is none. Nothing
// in it can change the terminal.
func Write(w io.Writer, r Report, width int) error {
	b := page{width: widest}
	if width > 0 {
		b.width = min(max(width, narrowest), widest)
	}
	b.WriteString(clean(r.Head) + "\n")
	names := 0
	for _, s := range r.Sections {
		for _, c := range s.Checks {
			if n := utf8.RuneCountInString(clean(c.Name)); n <= 20 {
				names = max(names, n)
			}
		}
	}
	for _, s := range r.Sections {
		b.WriteString("\n" + s.Title + "\n")
		for _, c := range s.Checks {
			b.check(c, names)
		}
	}
	b.WriteString("\n")
	b.wrapped("", "", r.Verdict+".")
	_, err := io.WriteString(w, b.String())
	return err
}

func (b *page) check(c Check, names int) {
	name := clean(c.Name)
	lead := "  " + string(c.Mark) + "  " + name + strings.Repeat(" ", max(names-utf8.RuneCountInString(name), 0)) + "  "
	indent := strings.Repeat(" ", 2+4+2+names+2)
	b.wrapped(lead, indent, c.Finding)
	for _, d := range c.Details {
		b.wrapped(indent+"- ", indent+"  ", d)
	}
	if c.Remedy != "" {
		b.wrapped(indent+"=> ", indent+"   ", c.Remedy)
	}
}

// wrapped writes text in lines that fit: lead begins the first, indent the others.
func (b *page) wrapped(lead, indent, text string) {
	line, empty := lead, true
	for _, word := range strings.Fields(clean(text)) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > b.width {
			b.WriteString(line + "\n")
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

func clean(s string) string { return output.Printable(strings.Join(strings.Fields(s), " "), false) }
