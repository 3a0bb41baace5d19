package server

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/plan"
)

// TestForeignDisks: a file that is no disk is refused on a node, but not where a guest may have made it so, nor to
// a guest that is restored.
func TestForeignDisks(t *testing.T) {
	zip := []byte("PK\x03\x04 and so on")
	written := append(bytes.Clone(zip), make([]byte, 1<<20-len(zip))...)
	for name, c := range map[string]struct {
		content []byte
		opener  opener
		refused bool
	}{
		"archive":            {zip, opener{plan: new(plan.Plan)}, true},
		"archive in sectors": {written[:512], opener{plan: new(plan.Plan)}, true},
		"disk of a guest":    {written, opener{plan: new(plan.Plan)}, false},
		"boot sector":        {append(make([]byte, 510), "\x55\xaa"...), opener{plan: new(plan.Plan)}, false},
		"restored":           {zip, opener{plan: &plan.Plan{Restore: new(plan.Restore)}}, false},
		"in a pod":           {zip, opener{plan: new(plan.Plan), sockets: "/sockets"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "image")
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			const field = "disks[0].path"
			f := &plan.File{Kind: plan.FilePath, Field: field, Path: path, Disk: &disk.Expectation{Field: field, Image: disk.Image{Path: path, Format: disk.Raw}}}
			err = c.opener.checkDisk(f, file, nil)
			if (err != nil) != c.refused {
				t.Fatalf("error %v, want one: %v", err, c.refused)
			}
			if err != nil && !strings.Contains(err.Error(), "it is a zip archive, not a disk: unpack it") {
				t.Errorf("error %v", err)
			}
		})
	}
}
