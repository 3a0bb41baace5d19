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

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// TestFlagsAreAdvice: what runs on a node says vmlet's flags and commands as advice (contract.Advice) alone. The control
// plane leaves that out of what it shows to the users of VMs, who have no such flags.
func TestFlagsAreAdvice(t *testing.T) {
	flag := regexp.MustCompile("[^-\"`]--[a-z]|\\((vmlet|fuser|lsblk|ss) ")
	ofOthers := []string{
		"agent/api/socket.go",            // the agent's own flags, to who starts it
		"agent/metrics/nodemetrics.go",   // a metric's help
		"agent/nodeobject/reconciler.go", // kubectl's, of a Node
		"vmm/cloudhypervisor/probe/ask.go",
	}
	checked := 0
	for _, folder := range nodeFolders() {
		for _, file := range sources(t, folder) {
			if slices.Contains(ofOthers, file) {
				continue
			}
			for _, text := range literals(t, file) {
				checked++
				if flag.MatchString(text) {
					t.Errorf("%s: %s names a flag or a command that is no advice", file, text)
				}
			}
		}
	}
	if checked < 1000 {
		t.Errorf("%d texts were found", checked)
	}
}

// TestFieldsAreNamed: what runs on a node names the fields of a specification, in what it says of another field, as such
// (contract.FieldName): the control plane has the instance's in their place.
func TestFieldsAreNamed(t *testing.T) {
	field := regexp.MustCompile(`[\s("';,]([a-z][A-Za-z]*(?:\[%d\]|\.[a-z][A-Za-z]*)+)`)
	checked := 0
	for _, folder := range nodeFolders() {
		for _, file := range sources(t, folder) {
			if strings.Contains(file, "test/") || file == "vmm/qemu/qemutest/cases.go" {
				continue
			}
			for _, text := range literals(t, file) {
				for _, m := range field.FindAllStringSubmatch(text, -1) {
					checked++
					if isField(m[1]) && strings.Contains(text, " ") && !strings.Contains(text, "{") {
						t.Errorf("%s: %s names %s", file, text, m[1])
					}
				}
			}
		}
	}
	if checked < 10 {
		t.Errorf("%d names were found", checked)
	}
}

// isField: a specification has such a field.
func isField(name string) bool {
	message := (*specv1.VirtualMachineSpec)(nil).ProtoReflect().Descriptor()
	for part := range strings.SplitSeq(name, ".") {
		part, _, _ = strings.Cut(part, "[")
		if message == nil {
			return false
		}
		f := message.Fields().ByJSONName(part)
		if f == nil {
			return false
		}
		message = f.Message()
	}
	return true
}

// nodeFolders have what runs on a node.
func nodeFolders() []string {
	return []string{"agent", "disk", "launch", "memory", "plan", "podnet", "shim", "spec", "vmm"}
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

// literals are a file's texts, but for the advice of faults and the fields that they name.
func literals(t *testing.T, file string) (all []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch part := n.(type) {
		case *ast.KeyValueExpr:
			if name, is := part.Key.(*ast.Ident); is && name.Name == "Advice" {
				return false
			}
		case *ast.CallExpr:
			if f, is := part.Fun.(*ast.SelectorExpr); is && (f.Sel.Name == "Advice" || f.Sel.Name == "FieldName") {
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
