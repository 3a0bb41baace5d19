package doctest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFlagsInParentheses: what runs on a node says vmlet's flags in parentheses alone. The control plane
// leaves those out of what it shows to the users of VMs (convert.InInstanceWords), who have no such flags.
func TestFlagsInParentheses(t *testing.T) {
	flag, inParentheses := regexp.MustCompile("[^-\"`]--[a-z]"), regexp.MustCompile(`\([^()]*\)`)
	ofOthers := []string{
		"agent/api/socket.go",            // the agent's own flags, to who starts it
		"agent/nodeobject/reconciler.go", // kubectl's, of a Node
		"vmm/cloudhypervisor/probe/ask.go",
	}
	checked := 0
	for _, folder := range []string{"agent", "disk", "launch", "memory", "plan", "podnet", "shim", "spec", "vmm"} {
		for _, file := range sources(t, folder) {
			if slices.Contains(ofOthers, file) {
				continue
			}
			for _, text := range literals(t, file) {
				checked++
				if flag.MatchString(inParentheses.ReplaceAllString(text, "")) {
					t.Errorf("%s: %s names a flag outside of parentheses", file, text)
				}
			}
		}
	}
	if checked < 1000 {
		t.Errorf("%d texts were found", checked)
	}
}

// sources are the Go files below a folder that are not tests.
func sources(t *testing.T, folder string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			name, _ := filepath.Rel(root, path)
			all = append(all, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// literals are a file's texts, but for the advice of faults, which the node's administrator alone is shown.
func literals(t *testing.T, file string) (all []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if part, is := n.(*ast.KeyValueExpr); is {
			if name, is := part.Key.(*ast.Ident); is && name.Name == "Advice" {
				return false
			}
		}
		if l, is := n.(*ast.BasicLit); is && l.Kind == token.STRING {
			all = append(all, l.Value)
		}
		return true
	})
	return all
}
