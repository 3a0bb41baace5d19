package spec

import (
	"fmt"
	"math/big"
	"strings"
)

// multipliers are the suffixes of Kubernetes' quantities that make sense for
// sizes (k8s.io/apimachinery/pkg/api/resource), "k" and "K" both.
var multipliers = map[string]int64{
	"":   1,
	"k":  1e3,
	"K":  1e3,
	"M":  1e6,
	"G":  1e9,
	"T":  1e12,
	"P":  1e15,
	"Ki": 1 << 10,
	"Mi": 1 << 20,
	"Gi": 1 << 30,
	"Ti": 1 << 40,
	"Pi": 1 << 50,
}

// maxQuantityLength bounds the arithmetic: no sensible size is longer.
const maxQuantityLength = 32

// ParseQuantity returns the number of bytes that a Kubernetes quantity stands
// for: "512Mi", "1.5Gi", "4G", "1048576". It must be a whole number of bytes
// between 0 and 2⁶³-1.
func ParseQuantity(s string) (uint64, error) {
	number := strings.TrimRight(s, "kKMGTPi")
	multiplier, known := multipliers[s[len(number):]]
	if !known || len(s) > maxQuantityLength || !isDecimal(number) {
		return 0, fmt.Errorf("%.40q is not a size: want a number and, if not bytes, one of Ki Mi Gi Ti Pi (powers of 1024) or K M G T P (powers of 1000), such as 512Mi or 1.5Gi", s)
	}
	bytes, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, fmt.Errorf("%q is not a size: %q is not a number", s, number)
	}
	bytes.Mul(bytes, new(big.Rat).SetInt64(multiplier))
	if !bytes.IsInt() {
		return 0, fmt.Errorf("%q is not a whole number of bytes", s)
	}
	if !bytes.Num().IsInt64() {
		return 0, fmt.Errorf("%q is too large: the most is 8191Pi", s)
	}
	return bytes.Num().Uint64(), nil
}

// isDecimal allows digits with at most one point among them, and none of what
// big.Rat reads beside that: signs, exponents, fractions, underscores.
func isDecimal(s string) bool {
	digits, point := 0, false
	for _, c := range s {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c == '.' && !point:
			point = true
		default:
			return false
		}
	}
	return digits > 0
}

// FormatQuantity returns bytes as a quantity with the largest power of 1024
// that divides it: 536870912 is "512Mi".
func FormatQuantity(bytes uint64) string {
	suffixes := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi"}
	i := 0
	for ; i < len(suffixes)-1 && bytes > 0 && bytes%1024 == 0; i++ {
		bytes /= 1024
	}
	return fmt.Sprintf("%d%s", bytes, suffixes[i])
}
