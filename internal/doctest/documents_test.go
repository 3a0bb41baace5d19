package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// longest is the number of words that a document may have. A reader who needs one fact reads the document
// for at most a quarter of an hour.
const longest = 4000

// TestDocumentsAreShort: no document has more words than a reader reads in one go. Only what has a letter
// or a digit counts as a word, so a table costs no more than the same text.
func TestDocumentsAreShort(t *testing.T) {
	for _, name := range documents(t) {
		if words := countWords(Read(t, filepath.Join(root, name))); words > longest {
			t.Errorf("%s has %d words, want at most %d: divide it", name, words, longest)
		}
	}
	const lines = 150
	if got := strings.Count(Read(t, filepath.Join(root, "README.md")), "\n"); got > lines {
		t.Errorf("README.md has %d lines, want at most %d", got, lines)
	}
}

// TestIndexIsComplete: docs/README.md lists every document, under one of the four kinds.
func TestIndexIsComplete(t *testing.T) {
	_, index, _ := strings.Cut(Read(t, filepath.Join(root, "docs/README.md")), "\n## Tutorials\n")
	for _, name := range documents(t) {
		file := strings.TrimPrefix(name, "docs/")
		if file == name || file == "README.md" || strings.Contains(file, "/") {
			continue
		}
		if !strings.Contains(index, "]("+file+")") {
			t.Errorf("docs/README.md does not list %s: add it under its kind", file)
		}
	}
}

// TestLinks: each link between documents leads to a file, and to a heading in it.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s:#]*)(#[^)\s]+)?\)`)
	for _, name := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(Read(t, filepath.Join(root, name)), -1) {
			target := name
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(name), m[1])
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: the link %q leads to no file", name, m[1])
				continue
			}
			if m[2] != "" && strings.HasSuffix(target, ".md") && !slices.Contains(anchors(Read(t, filepath.Join(root, target))), m[2][1:]) {
				t.Errorf("%s: %s has no heading %s", name, target, m[2])
			}
		}
	}
}

func TestCountWords(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"a sentence":   {"A VM sleeps.", 3},
		"a table's":    {"| field | note |\n| --- | --- |\n| `spec.a` | – |\n", 3},
		"other script": {"où – 12 µs", 3},
	} {
		if got := countWords(c.text); got != c.want {
			t.Errorf("%s: %d words, want %d", name, got, c.want)
		}
	}
}

func TestAnchorsOfHeadings(t *testing.T) {
	document := "# A VM's life\n## `spec` of [it](x.md#y), twice\n```sh\n# no heading\n```\n## Again\n## Again\n"
	want := []string{"a-vms-life", "spec-of-it-twice", "again", "again-1"}
	if got := anchors(document); !slices.Equal(got, want) {
		t.Errorf("anchors are %q, want %q", got, want)
	}
}

// documents returns the paths of all documents in docs, and of those in the root but the change log,
// which grows by design.
func documents(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/runbooks/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			name, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			if name != "CHANGELOG.md" {
				names = append(names, name)
			}
		}
	}
	if len(names) < 50 {
		t.Fatalf("found %d documents, want more", len(names))
	}
	return names
}

func countWords(text string) (n int) {
	word := regexp.MustCompile(`[\p{L}\p{N}]`)
	for _, w := range strings.Fields(text) {
		if word.MatchString(w) {
			n++
		}
	}
	return n
}

// anchors returns the anchors that GitHub gives a document's headings.
func anchors(document string) (all []string) {
	code := regexp.MustCompile("(?ms)^```.*?^```")
	link, left := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`), regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(code.ReplaceAllString(document, ""), -1) {
		anchor := left.ReplaceAllString(strings.ToLower(link.ReplaceAllString(m[1], "$1")), "")
		anchor = strings.ReplaceAll(anchor, " ", "-")
		if slices.Contains(all, anchor) {
			anchor += "-1"
		}
		all = append(all, anchor)
	}
	return all
}
