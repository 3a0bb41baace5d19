package trouble

import "regexp"

// volatile is what runtimes number their tries by.
var volatile = regexp.MustCompile(`\b[0-9a-f]{12,}\b`)

// backOff is how the kubelet says how long it waits, ever longer, for its next try.
var backOff = regexp.MustCompile(`\bback-off (\d+[hms])+\b`)

// Steady is what a kubelet says, without what changes from one try to the next: the same failure is always the same
// sentence.
func Steady(message string) string {
	return volatile.ReplaceAllString(backOff.ReplaceAllString(message, "back-off"), "…")
}
