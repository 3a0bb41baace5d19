package trouble

import "regexp"

// Volatile is what runtimes number their tries by.
var Volatile = regexp.MustCompile(`\b[0-9a-f]{12,}\b`)

// BackOff is how the kubelet says how long it waits, ever longer, for its next try.
var BackOff = regexp.MustCompile(`\bback-off (\d+[hms])+\b`)
