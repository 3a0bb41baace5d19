package notation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxID bounds the numbers in a list, so that a senseless file can't make a list
// of millions: above what Linux can be built for (CONFIG_NR_CPUS is at most 8192
// on x86, 4096 on arm64, 8192 on POWER).
const MaxID = 1 << 16

// IDList is a set of CPUs or nodes, sorted. Its JSON is an array; String gives
// the kernel's notation.
type IDList []int

// ParseIDList reads the kernel's list notation (Documentation/admin-guide/
// kernel-parameters: cpu lists): "0-3,8", and with a step "0-31:2/8". White
// space around it and an empty list are allowed.
func ParseIDList(text string) (IDList, error) {
	list := IDList{}
	text = strings.TrimSpace(text)
	if text == "" || text == "(null)" {
		return list, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		ids, err := parseRange(part)
		if err != nil {
			return nil, err
		}
		if list = append(list, ids...); len(list) > 4*MaxID {
			return nil, fmt.Errorf("%.40q has too many numbers", text)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// parseRange reads "N", "N-M" or "N-M:USED/GROUP": of each group of that many,
// the first USED.
func parseRange(part string) (IDList, error) {
	bounds, step, stepped := strings.Cut(part, ":")
	first, last, isRange := strings.Cut(bounds, "-")
	if !isRange {
		last = first
	}
	low, err1 := ParseID(first)
	high, err2 := ParseID(last)
	used, group := 1, 1
	var err3, err4 error
	if stepped {
		u, g, _ := strings.Cut(step, "/")
		used, err3 = ParseID(u)
		group, err4 = ParseID(g)
	}
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || low > high || group < 1 || used > group || used < 1 {
		return nil, fmt.Errorf("%.40q is not a range of numbers", part)
	}
	var ids IDList
	for id := low; id <= high; id++ {
		if (id-low)%group < used {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// ParseMask reads the kernel's mask notation (bitmap_print_to_pagebuf): words of
// 32 bits in hex, the highest first: "00000001,0000000f" is 0-3 and 32.
func ParseMask(text string) (IDList, error) {
	words := strings.Split(strings.TrimSpace(text), ",")
	list := IDList{}
	for i := len(words) - 1; i >= 0; i-- {
		word, err := strconv.ParseUint(words[i], 16, 32)
		base := 32 * (len(words) - 1 - i)
		if err != nil || base >= MaxID {
			return nil, fmt.Errorf("%.40q is not a mask of numbers below %d", text, MaxID)
		}
		for bit := range 32 {
			if word>>bit&1 == 1 {
				list = append(list, base+bit)
			}
		}
	}
	return list, nil
}

// ParseID reads one number of a list.
func ParseID(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n >= MaxID {
		return 0, fmt.Errorf("%.40q is not a number below %d", text, MaxID)
	}
	return int(n), nil
}

// String returns the kernel's notation: "0-3,8".
func (l IDList) String() string {
	var b strings.Builder
	for i := 0; i < len(l); {
		j := i
		for j+1 < len(l) && l[j+1] == l[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(l[i]))
		if j > i {
			fmt.Fprintf(&b, "-%d", l[j])
		}
		i = j + 1
	}
	return b.String()
}

// Has reports whether the id is in the list.
func (l IDList) Has(id int) bool {
	_, found := slices.BinarySearch(l, id)
	return found
}
