package server

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/internal/fingerprint"
	"github.com/vmlet/vmlet/shim"
)

// TestDescribeAsksOtherVMMs: VMMs beside the shim are asked what they can do, unless they are the agent's.
func TestDescribeAsksOtherVMMs(t *testing.T) {
	program := filepath.Join(t.TempDir(), "qemu")
	if err := os.WriteFile(program, []byte("a VMM"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum, err := fingerprint.Content([]string{program})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args shim.Describe
		same bool
	}{
		"the agent's":                     {shim.Describe{Files: []string{program}, Sum: sum}, true},
		"another":                         {shim.Describe{Files: []string{program}, Sum: "other"}, false},
		"one that is not there":           {shim.Describe{Files: []string{program + "-none"}, Sum: sum}, false},
		"an agent that names none of its": {shim.Describe{}, false},
	} {
		asked := 0
		s := &Server{session: &session{o: Options{Pod: &Pod{Probe: func(context.Context) (json.RawMessage, error) { asked++; return json.RawMessage(`{}`), nil }}}}}
		do, err := s.describe(&c.args)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := do()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out := answer.(*shim.Described)
		if out.SameVMMs != c.same || (asked == 0) != c.same || (len(out.VMMs) == 0) != c.same {
			t.Errorf("%s: the VMMs are the agent's: %v, were asked %d times, and say %q; want the agent's: %v", name, out.SameVMMs, asked, out.VMMs, c.same)
		}
	}
}
