package doctest

import (
	"bufio"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root         = "../.."
	architecture = "docs/architecture.md"
	decisions    = "docs/decisions.md"
	module       = "github.com/vmlet/vmlet/"
)

// TestDependencies: docs/decisions.md says of each module that is required why, and
// of no other.
func TestDependencies(t *testing.T) {
	_, table, _ := strings.Cut(Read(t, filepath.Join(root, decisions)), "\n## Dependencies\n")
	required := requirements(t)
	for _, name := range required {
		if !regexp.MustCompile(`(?m)^\|.*\b` + regexp.QuoteMeta(name) + `[,\s].*\|`).MatchString(table) {
			t.Errorf("%s doesn't say why %s is needed", decisions, name)
		}
	}
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z].+\..+?) \|`).FindAllStringSubmatch(table, -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			if !slices.Contains(required, name) {
				t.Errorf("%s says why %s is needed, and it is not required", decisions, name)
			}
		}
	}
}

// requirements are the modules that go.mod names as vmlet's own needs.
func requirements(t *testing.T) (names []string) {
	t.Helper()
	file, err := os.Open(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 2 && strings.HasPrefix(fields[1], "v") && path.Dir(fields[0]) != "." {
			names = append(names, fields[0])
		}
	}
	if lines.Err() != nil || len(names) == 0 {
		t.Fatalf("go.mod: %d modules, %v", len(names), lines.Err())
	}
	return names
}
