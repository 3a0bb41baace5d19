package doctest

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestThreatModel: the threat model names tests that exist, and all fuzz targets.
func TestThreatModel(t *testing.T) {
	document := readAll(t, "threat-model")
	there := tests(t, root)
	for _, m := range regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(document, -1) {
		if there[m[1]] == nil {
			t.Errorf("the threat model names %s, and no package has it", m[1])
		}
	}
	for name := range there {
		if strings.HasPrefix(name, "Fuzz") && !strings.Contains(document, "`"+name+"`") {
			t.Errorf("docs/threat-model-limits.md doesn't name %s: say in its last table what it is about", name)
		}
	}
	cases, err := os.ReadFile(filepath.Join(root, "test/e2e/conformance_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`conformance: ([a-zA-Z -]+[a-zA-Z])`).FindAllStringSubmatch(document, -1) {
		if !strings.Contains(string(cases), `name: "`+m[1]+`"`) {
			t.Errorf("the threat model names a case %q of TestConformance, and there is none", m[1])
		}
	}
}

// TestSeeds: docs/seeds*.md name tests that exist, with the package where several have one of the name.
func TestSeeds(t *testing.T) {
	there := tests(t, root)
	for _, m := range regexp.MustCompile("`(Test[A-Za-z0-9]+)(?:/[^`]*)?`(?: \\(([^)]*)\\))?").FindAllStringSubmatch(readAll(t, "seeds"), -1) {
		in := there[m[1]]
		first, _, _ := strings.Cut(m[2], ",")
		switch {
		case in == nil:
			t.Errorf("the documents on the seeds name %s, and no package has it", m[1])
		case len(in) > 1 && !in[first]:
			t.Errorf("the documents on the seeds name %s of %q, want one of %q", m[1], m[2], slices.Sorted(maps.Keys(in)))
		}
	}
}

// tests are the names of all tests and fuzz targets in the tree, each with its packages' folders.
func tests(t *testing.T, root string) map[string]map[string]bool {
	t.Helper()
	name := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9]+)\(`)
	found := make(map[string]map[string]bool)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		for _, m := range name.FindAllSubmatch(content, -1) {
			if found[string(m[1])] == nil {
				found[string(m[1])] = make(map[string]bool)
			}
			folder, errFolder := filepath.Rel(root, filepath.Dir(path))
			found[string(m[1])][folder] = true
			err = errors.Join(err, errFolder)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// readAll returns the text of all documents whose names begin alike.
func readAll(t *testing.T, beginning string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "docs", beginning+"*.md"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("docs/%s*.md: %d files, %v", beginning, len(paths), err)
	}
	var text strings.Builder
	for _, path := range paths {
		text.WriteString(Read(t, path))
	}
	return text.String()
}
