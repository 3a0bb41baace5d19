package contract

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// names are the values of this package's constants that no other string happens to be:
// "vmlet" is many things, "kubevirt.io/realtime" is one.
func names(t *testing.T) []string {
	t.Helper()
	parsed := token.NewFileSet()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(parsed, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	config := types.Config{Error: func(error) {}} // no constant needs what is imported
	checked, _ := config.Check("contract", parsed, files, nil)
	var all []string
	for _, name := range checked.Scope().Names() {
		c, is := checked.Scope().Lookup(name).(*types.Const)
		// LabelApp is also the API's group, with which much else begins.
		if is && name != "LabelApp" && strings.Contains(c.Val().ExactString(), ".io") {
			all = append(all, constant.StringVal(c.Val()))
		}
	}
	return all
}

// TestNamesAreApart: two constants with one value would be a name with two meanings.
func TestNamesAreApart(t *testing.T) {
	all := names(t)
	slices.Sort(all)
	if len(all) < 40 {
		t.Fatalf("only %d names found", len(all))
	}
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] {
			t.Errorf("%s has two constants", all[i])
		}
	}
}

// TestSpelledHereAlone: production code spells no name of the contract.
func TestSpelledHereAlone(t *testing.T) {
	all, root := names(t), ".."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"../contract", "../test", "../tools", "../.git"}, path):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		spelled(t, path, all)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// spelled reports the string literals of a file that are, or begin with, one of the names.
func spelled(t *testing.T, path string, names []string) {
	t.Helper()
	parsed := token.NewFileSet()
	file, err := parser.ParseFile(parsed, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		literal, is := n.(*ast.BasicLit)
		if !is || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatalf("%s: %v", parsed.Position(literal.Pos()), err)
		}
		for _, name := range names {
			rest, begins := strings.CutPrefix(text, name)
			if begins && (rest == "" || rest[0] == '/' || strings.HasSuffix(name, "/") || strings.HasSuffix(name, "-")) {
				t.Errorf("%s: %q: use the constant of package contract", parsed.Position(literal.Pos()), text)
				break
			}
		}
		return true
	})
}
