// Package domains writes lists of domain names as DNS does (RFC 1035).
package domains

import (
	"fmt"
	"strings"
)

const (
	maxName  = 253
	maxLabel = 63
	// maxPointer is the greatest offset that a pointer may have.
	maxPointer = 1<<14 - 1
)

// Check returns why that is no domain name. A trailing dot is allowed.
func Check(name string) error {
	name = strings.TrimSuffix(name, ".")
	if len(name) > maxName {
		return fmt.Errorf("%d bytes, a domain name has %d at most", len(name), maxName)
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel || strings.ContainsFunc(label, strange) {
			return fmt.Errorf("%.80q is no domain name", name)
		}
	}
	return nil
}

// strange finds what a guest's scripts had better not get. Names of services have
// underscores.
func strange(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

// Append appends names one after the other. All must be valid.
func Append(b []byte, names ...string) []byte {
	for _, name := range names {
		for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
			b = append(append(b, byte(len(label))), label...)
		}
		b = append(b, 0)
	}
	return b
}

// Compress returns names one after the other, where an end that was there before is a
// pointer to it (RFC 1035, section 4.1.4). All must be valid.
func Compress(names ...string) []byte {
	var b []byte
	seen := make(map[string]int)
	for _, name := range names {
		b = compress(b, strings.TrimSuffix(name, "."), seen)
	}
	return b
}

func compress(b []byte, name string, seen map[string]int) []byte {
	for rest := name; rest != ""; {
		if at, is := seen[rest]; is {
			return append(b, byte(at>>8)|0xc0, byte(at))
		}
		if len(b) <= maxPointer {
			seen[rest] = len(b)
		}
		var label string
		label, rest, _ = strings.Cut(rest, ".")
		b = append(append(b, byte(len(label))), label...)
	}
	return append(b, 0)
}
