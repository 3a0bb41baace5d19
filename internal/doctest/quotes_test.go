package doctest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAdding checks the documents that show how something is added by what there is.
func TestAdding(t *testing.T) {
	for name, language := range map[string]string{"a-device": "go", "a-field": "go", "a-label": "go", "a-metric": "go", "an-asset": "yaml"} {
		t.Run(name, func(t *testing.T) {
			document := Read(t, filepath.Join(root, "docs/adding-"+name+".md"))
			if blocks := strings.Count(document, "\n```"+language+"\n"); blocks < 4 {
				t.Errorf("it shows %d pieces of code, want more", blocks)
			}
			read := func(path string) (string, error) {
				content, err := os.ReadFile(filepath.Join(root, path))
				return string(content), err
			}
			for _, wrong := range Quotes(document, read) {
				t.Errorf("docs/adding-%s.md: %s", name, wrong)
			}
		})
	}
}

func TestQuotes(t *testing.T) {
	files := map[string]string{
		"room/one.go": "package room\n\nfunc a() {\n\tif b {\n\t\tc()\n\t}\n\td()\n}\n",
		"room/two.go": "package room\n\nvar e = 1\n",
	}
	read := func(path string) (string, error) {
		if content, exists := files[path]; exists {
			return content, nil
		}
		return "", errors.New("no such file")
	}
	block := func(code string) string { return "\n```go\n" + code + "\n```\n" }
	for name, c := range map[string]struct{ document, wrong string }{
		"as it is":        {"In `room/one.go`:\n" + block("func a() {\n\tif b {\n\t\tc()\n\t}"), ""},
		"dedented":        {"In `room/one.go`:\n" + block("if b {\n\tc()\n}"), ""},
		"lines left out":  {"In `room/one.go`:\n" + block("func a() {\n…\nd()"), ""},
		"neighbours":      {"In `room/one.go`:\n" + block("}\n…\nd()\n…\n}"), ""},
		"file before":     {"In `room/one.go` and `room/two.go`:\n" + block("var e = 1"), ""},
		"shell":           {"In `room/two.go`:\n\n```sh\nmake\n```\n", ""},
		"other order":     {"In `room/one.go`:\n" + block("d()\n…\nfunc a() {"), `"room/one.go" no longer has`},
		"part of a line":  {"In `room/two.go`:\n" + block("var e ="), `"room/two.go" no longer has`},
		"changed":         {"In `room/two.go`:\n" + block("var e = 2"), `"room/two.go" no longer has`},
		"another file's":  {"In `room/two.go` and `room/one.go`:\n" + block("var e = 1"), `"room/one.go" no longer has`},
		"no file named":   {block("var e = 1"), `"" no longer has`},
		"file that's not": {"In `room/three.go` is more.\n", "it names room/three.go: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(Quotes(c.document, read), "\n")
			if c.wrong == "" && got != "" || !strings.Contains(got, c.wrong) {
				t.Errorf("wrong are %q, want %q", got, c.wrong)
			}
		})
	}
}
