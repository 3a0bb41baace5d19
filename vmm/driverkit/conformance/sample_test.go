package conformance

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const sample = "../../../test/samplestack"

// TestSampleStack: the stack of an outsider, in a module of its own, keeps all rules, and is made of
// the kit alone.
func TestSampleStack(t *testing.T) {
	kit := []string{"vmm/driverkit", "vmm", "plan", "memory", "spec", "proto/vmlet/spec/v1", "proto/vmlet/capabilities/v1"}
	files, err := filepath.Glob(filepath.Join(sample, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	lines := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines += bytes.Count(content, []byte("\n"))
		file, err := parser.ParseFile(token.NewFileSet(), name, content, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if own, is := strings.CutPrefix(path, "github.com/vmlet/vmlet/"); is && !slices.Contains(kit, own) {
				t.Errorf("%s imports %s, which is not in the kit", name, own)
			}
		}
	}
	if lines >= 1000 {
		t.Errorf("it has %d lines, want fewer than 1,000", lines)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-trimpath", "-count=1", ".")
	cmd.Dir = sample
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("its own tests: %v (after a change of dependencies: go mod tidy in %s)\n%s", err, sample, out)
	}
}

// TestWrongDrivers: programs that are no drivers fail, and keep nobody waiting.
func TestWrongDrivers(t *testing.T) {
	for _, program := range []string{"/bin/true", "/bin/cat", "/nonexistent"} {
		t.Run(filepath.Base(program), func(t *testing.T) {
			var o Options
			o.Driver.Program = program
			checks := 0
			failed := Run(t.Context(), o, func(Check) { checks++ })
			if failed < 5 || checks < 8 {
				t.Errorf("%d of %d checks failed", failed, checks)
			}
		})
	}
}
