package suites

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSuites: each package whose tests have guests or clusters runs them alone.
func TestSuites(t *testing.T) {
	heavy, alone := make(map[string]bool), make(map[string]bool)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "../.." && exists(filepath.Join(path, "go.mod")) {
			return fs.SkipDir // go test ./... does not run those of another module
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder := filepath.Dir(path)
		for _, i := range file.Imports {
			switch i.Path.Value {
			case `"github.com/vmlet/vmlet/test/guest"`, `"github.com/vmlet/vmlet/test/cluster"`:
				heavy[folder] = true
			}
		}
		text, err := os.ReadFile(path)
		alone[folder] = alone[folder] || strings.Contains(string(text), "suites.StartsVMs(m)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(heavy) < 10 {
		t.Errorf("%d packages have guests or clusters, want more", len(heavy))
	}
	for folder := range heavy {
		if !alone[folder] {
			t.Errorf("%s: its tests have guests or clusters: its TestMain is to call suites.StartsVMs", folder)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
