package metrics_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDocs holds docs/metrics.md to the registry: each metric is there as it is,
// and no other. -update writes the tables.
func TestDocs(t *testing.T) {
	const path, begin, end = "../../docs/metrics.md", "<!-- %s: written by go test ./agent/metrics -update -->\n", "<!-- end -->\n"
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(content)
	tables := map[string]*strings.Builder{}
	for _, m := range start(t, everything(t, true)).All() {
		part := "node"
		switch {
		case strings.HasPrefix(m.Name, "kubevirt_vmi_"):
			part = "KubeVirt's"
		case strings.HasPrefix(m.Name, "vmlet_vm_"):
			part = "vmlet's own"
		}
		if tables[part] == nil {
			tables[part] = new(strings.Builder)
			fmt.Fprint(tables[part], "| metric | type | labels | what |\n| --- | --- | --- | --- |\n")
		}
		var labels []string
		for _, l := range m.Labels {
			if part == "node" || (l != "node" && l != "namespace" && l != "name") {
				labels = append(labels, "`"+l+"`")
			}
		}
		fmt.Fprintf(tables[part], "| `%s` | %s | %s | %s |\n", m.Name, m.Type, strings.Join(labels, ", "), m.Help)
	}
	for part, table := range tables {
		before, rest, ok := strings.Cut(page, fmt.Sprintf(begin, part))
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no place for the table %q", path, part)
		}
		page = before + fmt.Sprintf(begin, part) + table.String() + end + after
	}
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if page != string(content) {
		t.Errorf("%s is not as the registry is; go test -update writes it: %s", path, firstDifference(page, string(content)))
	}
}
