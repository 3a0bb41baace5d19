package hypervisor_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestSampleDocument: every piece of Go in docs/adding-a-hypervisor.md is in sample_test.go, which is compiled and run, word for
// word; and every method of the sample is in the document.
func TestSampleDocument(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	document, code := read("../docs/adding-a-hypervisor.md"), read("sample_test.go")
	pieces := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(document, -1)
	if len(pieces) < 5 {
		t.Fatalf("the document has %d pieces of Go", len(pieces))
	}
	var shown strings.Builder
	for _, p := range pieces {
		shown.WriteString(p[1])
		if !strings.Contains(code, p[1]) {
			t.Errorf("not in sample_test.go as it is in the document:\n%s", p[1])
		}
	}
	for _, line := range regexp.MustCompile(`(?m)^func \(s? ?Sample\) .*$`).FindAllString(code, -1) {
		if !strings.Contains(shown.String(), line) {
			t.Errorf("not in the document: %s", line)
		}
	}
	if !strings.Contains(read("standard/standard.go"), "emulation.Emulation{},\n\t)") {
		t.Error("hypervisor/standard no longer has a line for each hypervisor: put the document right")
	}
}
