package output

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// Printable escapes what could move the cursor or change the terminal: much of
// what is shown comes from a guest or its VMM. Spaces of any width become plain
// ones. Line feeds stay only if keepLines says so.
func Printable(s string, keepLines bool) string {
	clean := func(r rune) bool { return unicode.IsPrint(r) || keepLines && r == '\n' }
	if strings.IndexFunc(s, func(r rune) bool { return !clean(r) || r == unicode.ReplacementChar }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if clean(r) {
			b.WriteRune(r)
			continue
		}
		if unicode.Is(unicode.Zs, r) { // as protobuf puts into its errors
			b.WriteByte(' ')
			continue
		}
		q := strconv.QuoteRune(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

// Columns writes rows of equal length as an aligned table. The first is the
// header.
func Columns(w io.Writer, rows [][]string) error {
	return eachLine(w, rows, func(line string, _ int) string { return line })
}

// minLast is what is left of the last column however narrow a terminal is.
const minLast = 20

// Clipped is Columns with the last column cut where a terminal of that width ends; 0:
// it ends nowhere.
func Clipped(w io.Writer, rows [][]string, width int) error {
	return eachLine(w, rows, func(line string, last int) string {
		runes := []rune(line)
		if room := max(width, last+minLast); width > 0 && len(runes) > room {
			return string(runes[:room-1]) + "…"
		}
		return line
	})
}

// Folded is Columns with the last column in as many lines as a terminal of that width
// needs for it; 0: one.
func Folded(w io.Writer, rows [][]string, width int) error {
	return eachLine(w, rows, func(line string, last int) string {
		var out strings.Builder
		room := max(width, last+minLast)
		for runes := []rune(line); ; {
			if width == 0 || len(runes) <= room {
				return out.String() + string(runes)
			}
			end := room
			for end > last && runes[end] != ' ' {
				end--
			}
			rest := runes[min(end+1, len(runes)):]
			if end == last { // a word that is too long
				end, rest = room, runes[room:]
			}
			out.WriteString(strings.TrimRight(string(runes[:end]), " ") + "\n")
			runes = append([]rune(strings.Repeat(" ", last)), rest...)
		}
	})
}

// eachLine writes the table's lines as form makes them, which gets where the last
// column begins, in characters.
func eachLine(w io.Writer, rows [][]string, form func(line string, last int) string) error {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 8, 3, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = Printable(c, false)
			if c == "" && i < len(row)-1 {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	last := -1
	for line := range strings.Lines(b.String()) {
		line = strings.TrimRight(line, " \n")
		if last < 0 { // the header
			head := rows[0][len(rows[0])-1]
			last = utf8.RuneCountInString(strings.TrimSuffix(line, head))
		}
		if _, err := io.WriteString(w, form(line, last)+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// Age returns the time between two moments, with one or two units: "5s",
// "3m20s", "2h5m", "3d4h", "2y40d".
func Age(from, now time.Time) string {
	d := max(now.Sub(from), 0)
	const day = 24 * time.Hour
	units := []struct {
		size   time.Duration
		letter string
	}{{365 * day, "y"}, {day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	for i, u := range units {
		if d < u.size {
			continue
		}
		s := strconv.Itoa(int(d/u.size)) + u.letter
		if i+1 < len(units) {
			if rest := d % u.size / units[i+1].size; rest > 0 {
				s += strconv.Itoa(int(rest)) + units[i+1].letter
			}
		}
		return s
	}
	return "0s"
}

// Bytes returns a size in binary units: "1.5 GiB".
func Bytes(n uint64) string { return humanize.IBytes(n) }

// Milliseconds returns a duration to be read: "120ms", "1.2s".
func Milliseconds(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	if d >= time.Second {
		d = d.Round(100 * time.Millisecond)
	}
	return d.String()
}
