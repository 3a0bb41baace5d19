package draw

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/vmlet/vmlet/sysfs"
)

// maxText bounds what is shown of one name, in characters.
const maxText = 120

// clean makes a machine's own words fit to be shown: one line, no longer than
// maxText, and nothing in it that moves a cursor or turns the text around.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
	return shorten(strings.Join(strings.Fields(s), " "), maxText)
}

// shorten cuts text to a number of characters.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	if r := []rune(s); len(r) > n {
		return string(r[:max(n-1, 0)]) + "…"
	}
	return s
}

// size writes bytes in binary units with no more than four digits that matter:
// "48 KiB", "1.25 MiB", "503.5 GiB".
func size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	decimals := 2
	if value >= 100 {
		decimals = 1
	}
	text := strconv.FormatFloat(value, 'f', decimals, 64)
	text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	return text + " " + units[unit]
}

// count writes a number and what is counted, which gets an s unless it is one.
func count(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(what, "y"))
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// joined leaves out what is empty.
func joined(sep string, parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, sep)
}

// capital makes a machine's own words begin a line.
func capital(s string) string {
	for i, r := range s {
		return string(unicode.ToUpper(r)) + s[i+utf8.RuneLen(r):]
	}
	return s
}

// hugePages lists the pools that have pages: "512 × 2 MiB (500 free)".
func hugePages(pools []sysfs.HugePages) string {
	var parts []string
	for _, p := range pools {
		if p.Total > 0 {
			parts = append(parts, fmt.Sprintf("%d × %s (%d free)", p.Total, size(p.PageSize), p.Free))
		}
	}
	return strings.Join(parts, ", ")
}

// distances sums up how far the other nodes are: "12 to 1-3 | 32 to 4-7".
func distances(h *sysfs.Host, n *sysfs.Node) string {
	to := map[int]sysfs.IDList{}
	var order []int
	for i, id := range onlineNodes(h) {
		if i >= len(n.Distances) || id == n.ID {
			continue
		}
		d := n.Distances[i]
		if to[d] == nil {
			order = insert(order, d)
		}
		to[d] = append(to[d], id)
	}
	var parts []string
	for _, d := range order {
		parts = append(parts, fmt.Sprintf("%d to %s", d, to[d]))
	}
	return strings.Join(parts, " | ")
}

// onlineNodes are what Node.Distances refers to.
func onlineNodes(h *sysfs.Host) sysfs.IDList {
	ids := sysfs.IDList{}
	for _, n := range h.Nodes {
		if n.Online {
			ids = append(ids, n.ID)
		}
	}
	return ids
}
