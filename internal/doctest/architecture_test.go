package doctest

import (
	"bufio"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root         = "../.."
	architecture = "docs/architecture.md"
	module       = "github.com/vmlet/vmlet/"
)

// TestHouse holds the table of folders in docs/architecture.md against the packages:
// each has its place there, and imports only such as stand below it.
func TestHouse(t *testing.T) {
	floors := folders(t)
	imports := packages(t)
	for folder := range imports {
		if !slices.Contains(floors, folder) {
			t.Errorf("%s: the house has no %s", architecture, folder)
		}
	}
	for floor, folder := range floors {
		if slices.Index(floors, folder) != floor {
			t.Errorf("%s: %s is there twice", architecture, folder)
		}
		if _, there := imports[folder]; !there {
			t.Errorf("%s: %s is no package", architecture, folder)
		}
		for _, imported := range imports[folder] {
			if below := slices.Index(floors, imported); below >= 0 && below <= floor {
				t.Errorf("%s imports %s, which stands above it in %s", folder, imported, architecture)
			}
		}
	}
}

// folders are those of the table under "The house", from the top down.
func folders(t *testing.T) (all []string) {
	t.Helper()
	_, house, _ := strings.Cut(Read(t, filepath.Join(root, architecture)), "\n## The house\n")
	house, _, _ = strings.Cut(house, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+) \\|").FindAllStringSubmatch(house, -1) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			all = append(all, m[1])
		}
	}
	return all
}

// packages are vmlet's own by their folders, each with what it imports of the others.
// Those for tests count only where others import them.
func packages(t *testing.T) map[string][]string {
	t.Helper()
	found := make(map[string][]string)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		folder, _ := filepath.Rel(root, filepath.Dir(name))
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "testdata", "tools", "dist", "bin"}, d.Name()):
			return fs.SkipDir
		case d.IsDir() && folder == "test" && d.Name() != "guest":
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		if found[folder] == nil {
			found[folder] = []string{}
		}
		for _, i := range file.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			if own, is := strings.CutPrefix(imported, module); is && err == nil {
				found[folder] = append(found[folder], own)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestDependencies: docs/architecture.md says of each module that is required why, and
// of no other.
func TestDependencies(t *testing.T) {
	_, table, _ := strings.Cut(Read(t, filepath.Join(root, architecture)), "\n## Dependencies\n")
	required := requirements(t)
	for _, name := range required {
		if !regexp.MustCompile(`(?m)^\|.*\b` + regexp.QuoteMeta(name) + `[,\s].*\|`).MatchString(table) {
			t.Errorf("%s doesn't say why %s is needed", architecture, name)
		}
	}
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z].+\..+?) \|`).FindAllStringSubmatch(table, -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			if !slices.Contains(required, name) {
				t.Errorf("%s says why %s is needed, and it is not required", architecture, name)
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
