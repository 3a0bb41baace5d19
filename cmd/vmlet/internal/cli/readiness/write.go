package readiness

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/output"
)

// width in columns that text is broken at; a longer word stays whole.
const width = 100

// Write writes a report for people. Nothing in it can change the terminal.
func Write(w io.Writer, r Report) error {
	var b strings.Builder
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
			writeCheck(&b, c, names)
		}
	}
	b.WriteString("\n")
	wrapped(&b, "", "", r.Verdict+".")
	_, err := io.WriteString(w, b.String())
	return err
}

func writeCheck(b *strings.Builder, c Check, names int) {
	name := clean(c.Name)
	lead := "  " + string(c.Mark) + "  " + name + strings.Repeat(" ", max(names-utf8.RuneCountInString(name), 0)) + "  "
	indent := strings.Repeat(" ", 2+4+2+names+2)
	wrapped(b, lead, indent, c.Finding)
	for _, d := range c.Details {
		wrapped(b, indent+"- ", indent+"  ", d)
	}
	if c.Remedy != "" {
		wrapped(b, indent+"=> ", indent+"   ", c.Remedy)
	}
}

// wrapped writes text in lines that fit: lead begins the first, indent the others.
func wrapped(b *strings.Builder, lead, indent, text string) {
	line, empty := lead, true
	for _, word := range strings.Fields(clean(text)) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
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
