package hypervisor_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/internal/doctest"
)

// TestSampleDocument: every piece of Go in docs/adding-a-hypervisor.md is in sample_test.go, which is compiled and run, word for
// word; and every method of the sample is in the document.
func TestSampleDocument(t *testing.T) {
	doctest.Compare(t, "../docs/adding-a-hypervisor.md", "sample_test.go", regexp.MustCompile(`(?m)^func \([sl]? ?(?:Sample|Local)\) .*$`))
	if !strings.Contains(doctest.Read(t, "standard/standard.go"), "emulation.Emulation{},\n\t)") {
		t.Error("hypervisor/standard no longer has a line for each hypervisor: put the document right")
	}
	if !strings.Contains(doctest.Read(t, "standard/probe/probe.go"), "emulation.Emulation{},\n\t)") {
		t.Error("hypervisor/standard/probe no longer has a line for each hypervisor: put the document right")
	}
}
