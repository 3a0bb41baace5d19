package sysfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNested: what KVM's modules say of guests of guests.
func TestNested(t *testing.T) {
	for name, c := range map[string]struct {
		module, text, want, note string
	}{
		"Intel":     {"kvm_intel", "Y\n", "true", ""},
		"AMD":       {"kvm_amd", "1\n", "true", ""},
		"off":       {"kvm_amd", "0\n", "false", ""},
		"IBM Z":     {"kvm", "N\n", "false", ""},
		"POWER":     {"kvm_hv", "Y\n", "true", ""},
		"not told":  {"kvm_pvm", "Y\n", "nil", ""},
		"senseless": {"kvm_intel", "perhaps\n", "nil", `"perhaps" is neither Y nor N`},
	} {
		t.Run(name, func(t *testing.T) {
			roots := Roots{Sys: t.TempDir(), Proc: t.TempDir(), Dev: t.TempDir()}
			path := roots.SysPath("module", c.module, "parameters", "nested")
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			h := Read(roots)
			got := "nil"
			if h.Virtualization.Nested != nil {
				got = fmt.Sprint(*h.Virtualization.Nested)
			}
			var notes string
			for _, n := range h.Notes {
				if n.Path == path {
					notes += n.Message
				}
			}
			if got != c.want || (notes == "") != (c.note == "") || !strings.Contains(notes, c.note) {
				t.Errorf("%s, want %s; noted %q, want %q", got, c.want, notes, c.note)
			}
		})
	}
}
