package qemutest

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/plan"
)

// Infos are the fixtures that a case is for.
func Infos(c Case) []string {
	if c.Info != "" {
		return []string{c.Info}
	}
	return []string{"7.2", "10.0"}
}

// Render shows options with their values in a line, and the plan's other parts
// after them.
func Render(t *testing.T, p *plan.Plan) string {
	t.Helper()
	var out strings.Builder
	for _, arg := range p.Args {
		if strings.ContainsAny(arg, "\n\r") {
			t.Errorf("argument %q spans lines", arg)
		}
		out.WriteString(arg + "\n")
	}
	rest := *p
	rest.Args, rest.Files = nil, nil
	for _, part := range []struct {
		name  string
		value any
	}{{"files", p.Files}, {"plan", rest}} {
		text, err := json.MarshalIndent(part.value, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("\n" + part.name + " " + string(text) + "\n")
	}
	return out.String()
}

// Compare holds a text against a golden file; update writes it instead.
func Compare(t *testing.T, update bool, path, got string) {
	t.Helper()
	if update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: make it with -update and read it", err)
	}
	if got == string(want) {
		return
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		g, w := line(gotLines, i), line(wantLines, i)
		if g != w {
			t.Fatalf("%s:%d:\n got %s\nwant %s", path, i+1, g, w)
		}
	}
}

func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}
