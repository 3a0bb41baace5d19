package qemu

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

type vmSpec = specv1.VirtualMachineSpec

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// TestGolden compares each command line, an argument a line, and the rest of the
// plan, with testdata/CASE-INFO.args.
func TestGolden(t *testing.T) {
	for _, c := range planCases() {
		for _, info := range infos(c) {
			t.Run(c.name+"-"+info, func(t *testing.T) {
				p, err := New(Config{}).Plan(c.request(fixture(t, info)))
				if err != nil {
					t.Fatal(err)
				}
				compareGolden(t, filepath.Join("testdata", c.name+"-"+info+".args"), render(t, p))
			})
		}
	}
}

func infos(c planCase) []string {
	if c.info != "" {
		return []string{c.info}
	}
	return []string{"7.2", "10.0"}
}

// render shows options with their values in a line, and the plan's other parts
// after them.
func render(t *testing.T, p *plan.Plan) string {
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

func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
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

// TestPlanIsStable makes each plan again: nothing may depend on a map's order.
func TestPlanIsStable(t *testing.T) {
	for _, c := range planCases() {
		r := c.request(fixture(t, infos(c)[0]))
		first, err := New(Config{}).Plan(r)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			again, err := New(Config{}).Plan(r)
			if err != nil {
				t.Fatal(err)
			}
			if render(t, again) != render(t, first) {
				t.Fatalf("%s: two plans of one request differ", c.name)
			}
		}
	}
}
