package labels

import (
	"slices"
	"strings"
)

// family is a kind of label.
type family struct {
	// key is the label's; where it ends in "/" or "-" a name follows.
	key string
	// set: the names are a set, and a part of it may be known. Other families
	// are known as a whole or not at all.
	set bool
	// labels adds what the document has; names and values as they come.
	labels func(v *view, add adder)
	// sources are the facts that the labels follow from: while one of them could not
	// be asked, the family stays as it was.
	sources []source
}

type adder func(name, value string)

func whole(key string, labels func(*view, adder), sources ...source) family {
	return family{key: key, labels: labels, sources: sources}
}

func set(key string, labels func(*view, adder), sources ...source) family {
	return family{key: key, set: true, labels: labels, sources: sources}
}

// many: a name follows the key.
func (f family) many() bool { return strings.HasSuffix(f.key, "/") || strings.HasSuffix(f.key, "-") }

// each: a label of the family follows from a fact of its own.
func (f family) each() bool {
	return slices.ContainsFunc(f.sources, func(s source) bool { return s.named })
}

// has reports whether a key is one of the family's.
func (f family) has(key string) bool {
	return key == f.key || f.many() && strings.HasPrefix(key, f.key)
}

// families are all there are. No key is the beginning of another's labels.
func families() []family { return append(kubevirt(), own()...) }

// familyOf finds the family of a key, and the name in it.
func familyOf(key string) (f family, name string, found bool) {
	for _, f := range families() {
		if f.has(key) {
			return f, key[len(f.key):], true
		}
	}
	return family{}, "", false
}
