package sysfs

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/sysfs/sysfstest"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// golden compares a value's JSON with testdata/NAME.json. The tree's own place
// is left out of its paths.
func golden(t *testing.T, name string, tree *sysfstest.Tree, value any) {
	t.Helper()
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(string(content), tree.Root+"/", "/") + "\n"
	path := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run go test with -update, and read what it writes", err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it anew); got:\n%s", path, got)
	}
}
