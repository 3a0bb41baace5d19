package validation

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/fields"
)

// patterns returns the fields below a type as the table names them, each with whether it
// has fields of its own.
func patterns(t reflect.Type, at string, into map[string]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			at += "[]"
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || !ours(t) {
		return
	}
	structPatterns(t, at, into)
}

func structPatterns(t reflect.Type, at string, into map[string]bool) {
	for i := range t.NumField() {
		name, inline := fields.Name(t.Field(i))
		if inline {
			structPatterns(t.Field(i).Type, at, into)
			continue
		}
		below := make(map[string]bool)
		patterns(t.Field(i).Type, join(at, name), below)
		into[join(at, name)] = len(below) > 0
		maps.Copy(into, below)
	}
}

func TestEveryFieldIsListed(t *testing.T) {
	for kind, c := range map[string]struct {
		spec  reflect.Type
		table []fields.Field
	}{
		"VirtualMachine":         {reflect.TypeFor[kubevirtv1.VirtualMachineSpec](), machineTable()},
		"VirtualMachineInstance": {reflect.TypeFor[kubevirtv1.VirtualMachineInstanceSpec](), fields.Instance()},
	} {
		all := make(map[string]bool)
		patterns(c.spec, "", all)
		if len(all) < 200 {
			t.Fatalf("%s has %d fields: want all of the API's", kind, len(all))
		}
		listed := make(map[string]fields.Field)
		for _, row := range c.table {
			if _, twice := listed[row.Path]; twice {
				t.Errorf("%s: %s is listed twice", kind, row.Path)
			}
			listed[row.Path] = row
		}
		for path, hasFields := range all {
			if !hasFields && !isListed(path, listed) {
				t.Errorf("%s: %s is neither supported nor refused nor ignored", kind, path)
			}
		}
		for path, row := range listed {
			name, _, _ := strings.Cut(path, "=")
			name = strings.TrimSuffix(name, ".*")
			if hasFields, exists := all[name]; !exists {
				t.Errorf("%s: the API has no %s", kind, path)
			} else if hasFields && row.Support == fields.Supported && name == path {
				t.Errorf("%s: %s is listed as supported, and so are none of the fields below it: list those", kind, path)
			}
		}
	}
}

// isListed says whether the table has a row for a field, or one for all of what it is in.
func isListed(path string, listed map[string]fields.Field) bool {
	if _, itself := listed[path]; itself {
		return true
	}
	for i := range path {
		if path[i] != '.' && path[i] != '[' {
			continue
		}
		if row, above := listed[path[:i]]; above && row.Support != fields.Supported {
			return true
		}
		if _, whole := listed[path[:i]+".*"]; whole {
			return true
		}
	}
	return false
}

func TestRowsAreComplete(t *testing.T) {
	for _, row := range slices.Concat(machineTable(), fields.Annotations()) {
		switch row.Support {
		case fields.Supported:
			if row.VMM != fields.AllVMMs && row.VMM != fields.OnlyQEMU {
				t.Errorf("%s: no VMM supports it", row.Path)
			}
		case fields.Refused, fields.Ignored:
			if row.Note == "" || row.VMM != "" {
				t.Errorf("%s: %s, by %q, with the note %q: want a note and no VMM", row.Path, row.Support, row.VMM, row.Note)
			}
		default:
			t.Errorf("%s: %q is no kind of support", row.Path, row.Support)
		}
		if strings.HasSuffix(row.Note, ".") || strings.Contains(row.Note, "|") {
			t.Errorf("%s: the note %q ends with a period or has a bar in it", row.Path, row.Note)
		}
	}
}

var update = flag.Bool("update", false, "write the tables of docs/virtual-machine-fields.md")

func TestDocumentHasEveryField(t *testing.T) {
	const document, begin, end = "../../docs/virtual-machine-fields.md", "<!-- fields: made by go test ./cluster/validation -update -->\n", "<!-- fields end -->\n"
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no %s … %s", document, begin, end)
	}
	want := before + begin + tables() + end + after
	if *update {
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s differs from the tables in the code: run go test ./cluster/validation -update", document)
	}
}

// tables are those of the document.
func tables() string {
	var text strings.Builder
	for _, part := range []struct {
		title string
		rows  []fields.Field
	}{
		{"`spec` of a VirtualMachine", fields.Machine()},
		{"`spec` of a VirtualMachineInstance, `spec.template.spec` of a VirtualMachine", fields.Instance()},
		{"Annotations of a VirtualMachineInstance, or in `spec.template.metadata` of a VirtualMachine", fields.Annotations()},
	} {
		fmt.Fprintf(&text, "\n## %s\n\n| field | | VMM | note |\n| --- | --- | --- | --- |\n", part.title)
		for _, row := range part.rows {
			path := strings.ReplaceAll(strings.TrimSuffix(row.Path, ".*"), "=", ": ")
			fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n", path, row.Support, row.VMM, row.Note)
		}
	}
	return text.String() + "\n"
}
