// Package text prints what a cluster says for people at a terminal: ages, and words of
// others that must not be able to change the terminal.
package text

import (
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/duration"
)

// longest is how much of a message is printed, in characters.
const longest = 2000

// Safe returns a message on one line without what a terminal would carry out. Messages have
// words of nodes, VMMs and guests in them.
func Safe(message string) string {
	count := 0
	safe := strings.Map(func(r rune) rune {
		switch count++; {
		case count > longest:
			return -1
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, message)
	if count > longest {
		safe += " …"
	}
	return strings.TrimSpace(safe)
}

// Age returns how long ago something was, as kubectl writes it, or "-" if that isn't known.
func Age(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(now.Sub(then), 0))
}
