package v1

import (
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// TestImports: clients that want the types alone get nothing else with them.
func TestImports(t *testing.T) {
	for _, file := range files(t, "*.go") {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range parsed.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(path, "k8s.io/api/") && !strings.HasPrefix(path, "k8s.io/apimachinery/") {
				t.Errorf("%s imports %s, want k8s.io/api and k8s.io/apimachinery alone", file, path)
			}
		}
	}
}
