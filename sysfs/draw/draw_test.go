package draw

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/sysfs"
)

var update = flag.Bool("update", false, "write golden files")

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (run with -update, look at the difference); got\n%.3000s", path, got)
	}
}

func drawn(t *testing.T, draw func(io.Writer, *sysfs.Host) error, h *sysfs.Host) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := draw(&b, h); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTree(t *testing.T) {
	for name, h := range hosts() {
		t.Run(name, func(t *testing.T) {
			golden(t, filepath.Join("testdata", name+".txt"), drawn(t, Tree, h))
		})
	}
}

func TestSVG(t *testing.T) {
	for name, h := range hosts() {
		t.Run(name, func(t *testing.T) {
			golden(t, filepath.Join("testdata", name+".svg"), drawn(t, SVG, h))
		})
	}
}
