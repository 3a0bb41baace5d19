package machine

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// most is how many fields are named that differ.
const most = 3

// differences adds the paths at which two decoded JSON values differ, up to so many, in
// order. A list that has become longer or shorter is one.
func differences(paths []string, at string, a, b any) []string {
	if len(paths) >= most || reflect.DeepEqual(a, b) {
		return paths
	}
	switch a := a.(type) {
	case map[string]any:
		b, same := b.(map[string]any)
		if !same {
			break
		}
		keys := slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b)))
		slices.Sort(keys)
		for _, key := range slices.Compact(keys) {
			paths = differences(paths, at+"."+key, a[key], b[key])
		}
		return paths
	case []any:
		b, same := b.([]any)
		if !same || len(a) != len(b) {
			break
		}
		for i := range a {
			paths = differences(paths, fmt.Sprintf("%s[%d]", at, i), a[i], b[i])
		}
		return paths
	}
	return append(paths, at)
}
