// Package doctest compares a document with the code that it shows, for tests.
package doctest

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Compare sees that every piece of Go in a document (a block that begins with
// "```go") is in a file of code, word for word, and that every line of code that
// matches a pattern is in the document. Both are paths.
func Compare(t *testing.T, document, code string, shown *regexp.Regexp) {
	t.Helper()
	text, source := Read(t, document), Read(t, code)
	pieces := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1)
	if len(pieces) < 5 {
		t.Fatalf("%s has %d pieces of Go, want more", document, len(pieces))
	}
	var all strings.Builder
	for _, p := range pieces {
		all.WriteString(p[1])
		if !strings.Contains(source, p[1]) {
			t.Errorf("not in %s as it is in %s:\n%s", code, document, p[1])
		}
	}
	for _, line := range shown.FindAllString(source, -1) {
		if !strings.Contains(all.String(), line) {
			t.Errorf("not in %s: %s", document, line)
		}
	}
}

// Read returns the text of a file.
func Read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
