package labels

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocumented: docs/labels.md has every family, and no other.
func TestDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../docs/labels.md")
	if err != nil {
		t.Fatal(err)
	}
	first := regexp.MustCompile("(?m)^\\| `([^`]*\\.io/[^`]*)` \\|") // of a table's row
	listed := map[string]bool{}
	for _, row := range first.FindAllStringSubmatch(string(raw), -1) {
		f, _, found := familyOf(row[1])
		if !found {
			t.Errorf("%s is in docs/labels.md and is no label", row[1])
		}
		listed[f.key] = true
	}
	for _, f := range families() {
		if !listed[f.key] {
			t.Errorf("%s is not in docs/labels.md", f.key)
		}
	}
}

// TestDocumentedExample: the encoded name in docs/labels.md is right.
func TestDocumentedExample(t *testing.T) {
	raw, err := os.ReadFile("../../docs/labels.md")
	if err != nil {
		t.Fatal(err)
	}
	if example := "`a b` is `" + encode("a b") + "`"; !strings.Contains(string(raw), example) {
		t.Errorf("docs/labels.md doesn't have %s", example)
	}
}

// TestFamiliesAreApart: no key could be of two families.
func TestFamiliesAreApart(t *testing.T) {
	all := families()
	for i, a := range all {
		for j, b := range all {
			if i != j && a.has(b.key) {
				t.Errorf("%s is within %s", b.key, a.key)
			}
		}
		if len(a.sources) == 0 || !strings.Contains(a.key, "/") {
			t.Errorf("%s: %d sources", a.key, len(a.sources))
		}
	}
}
