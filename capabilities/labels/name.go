package labels

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	// maxName is the longest that a label's value, and its key behind the
	// slash, may be in bytes (Kubernetes: "Labels and Selectors", syntax).
	maxName = 63
	// sumDigits of the SHA-256 tell encoded names apart.
	sumDigits = 12
)

// encode returns a name or value as a label may have it. What is valid stays.
// In anything else each odd byte becomes "-", what is too long is cut, and "-x"
// and 12 hex digits of the original's SHA-256 are appended: two different names
// stay different. A valid name that ends like an encoded one is encoded, too.
func encode(s string) string {
	if s == "" || valid(s) && !looksEncoded(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	mark := "x" + hex.EncodeToString(sum[:])[:sumDigits]
	clean := []byte(s[:min(len(s), maxName-len(mark)-1)])
	for i, b := range clean {
		if !alphanumeric(b) && b != '-' && b != '_' && b != '.' {
			clean[i] = '-'
		}
	}
	head := strings.Trim(string(clean), "-_.")
	if head == "" {
		return mark
	}
	return head + "-" + mark
}

// valid reports whether Kubernetes takes it behind the slash of a key and, if
// it is not empty, as a value.
func valid(s string) bool {
	if s == "" || len(s) > maxName || !alphanumeric(s[0]) || !alphanumeric(s[len(s)-1]) {
		return false
	}
	for _, b := range []byte(s) {
		if !alphanumeric(b) && b != '-' && b != '_' && b != '.' {
			return false
		}
	}
	return true
}

// looksEncoded: it ends in a mark of encode.
func looksEncoded(s string) bool {
	at := len(s) - sumDigits - 1
	if at < 0 || s[at] != 'x' || at > 0 && s[at-1] != '-' {
		return false
	}
	return strings.Trim(s[at+1:], "0123456789abcdef") == ""
}

func alphanumeric(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
}
