package spec

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// multiplier is what a suffix of Kubernetes' quantities stands for. There are those
// that make sense for sizes (k8s.io/apimachinery/pkg/api/resource), "k" and "K" both.
func multiplier(suffix string) (factor int64, known bool) {
	switch suffix {
	case "":
		return 1, true
	case "k", "K":
		return 1e3, true
	case "M":
		return 1e6, true
	case "G":
		return 1e9, true
	case "T":
		return 1e12, true
	case "P":
		return 1e15, true
	case "Ki":
		return 1 << 10, true
	case "Mi":
		return 1 << 20, true
	case "Gi":
		return 1 << 30, true
	case "Ti":
		return 1 << 40, true
	case "Pi":
		return 1 << 50, true
	}
	return 0, false
}

// maxQuantityLength bounds the arithmetic: no sensible size is longer.
const maxQuantityLength = 32

// ParseQuantity returns the number of bytes that a Kubernetes quantity stands
// for: "512Mi", "1.5Gi", "4G", "1048576". It must be a whole number of bytes
// between 0 and 2⁶³-1.
func ParseQuantity(s string) (uint64, error) {
	number := strings.TrimRight(s, "kKMGTPi")
	factor, known := multiplier(s[len(number):])
	if !known || len(s) > maxQuantityLength || !isDecimal(number) {
		return 0, fmt.Errorf("%.40q is not a size: want a number and, if not bytes, one of Ki Mi Gi Ti Pi (powers of 1024) or K M G T P (powers of 1000), such as 512Mi or 1.5Gi", s)
	}
	bytes, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, fmt.Errorf("%q is not a size: %q is not a number", s, number)
	}
	bytes.Mul(bytes, new(big.Rat).SetInt64(factor))
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

// ShortQuantity returns bytes for people: below a GiB in whole MiB, else in GiB with one
// decimal, as in "23.5Gi". It rounds down, so that what seems to fit does.
func ShortQuantity(bytes uint64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%dMi", bytes>>20)
	}
	tenths := bytes>>30*10 + bytes%(1<<30)*10>>30
	return strconv.FormatFloat(float64(tenths)/10, 'f', -1, 64) + "Gi"
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
