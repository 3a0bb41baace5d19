package faultpoint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/internal/faultpoint"
)

// TestAllAreInTheSource looks for the steps in the programs' source: each is at one
// place, and none is unknown.
func TestAllAreInTheSource(t *testing.T) {
	found := make(map[string]string)
	root := filepath.Join("..", "..")
	for _, folder := range []string{"agent", "cmd", "memory", "shim", "vmm"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			for _, call := range reaches(file) {
				at := set.Position(call.Pos()).String()
				literal, isLiteral := call.Args[0].(*ast.BasicLit)
				if !isLiteral {
					t.Errorf("%s: the name of a step is not written out", at)
					continue
				}
				name, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Errorf("%s: %v", at, err)
				}
				if other := found[name]; other != "" {
					t.Errorf("%s: %s is at %s, too", at, name, other)
				}
				found[name] = at
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	all := faultpoint.All()
	for name, at := range found {
		if !slices.Contains(all, name) {
			t.Errorf("%s: %s is not among All", at, name)
		}
	}
	for _, name := range all {
		if found[name] == "" {
			t.Errorf("%s is nowhere in the source", name)
		}
	}
}

// reaches are the calls of Reach.
func reaches(file *ast.File) (calls []*ast.CallExpr) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, isCall := n.(*ast.CallExpr)
		if !isCall || len(call.Args) != 1 {
			return true
		}
		function, isSelector := call.Fun.(*ast.SelectorExpr)
		if !isSelector || function.Sel.Name != "Reach" {
			return true
		}
		if pkg, isName := function.X.(*ast.Ident); isName && pkg.Name == "faultpoint" {
			calls = append(calls, call)
		}
		return true
	})
	return calls
}
