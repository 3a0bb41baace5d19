package server

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
)

// TestSpaceForAllocatedMemory: RAM next to its CPUs is allocated as a whole. What the guest has written to it decides
// whether it has room in an image, before the guest is stopped.
func TestSpaceForAllocatedMemory(t *testing.T) {
	dir, _ := smallDisk(t) // 64 MiB
	const size = 80 << 20
	image, err := memory.Create(filepath.Join(dir, "image"), memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = image.Abort() }()
	p := &prepared{image: image}
	for _, c := range []struct {
		name    string
		written int
		fits    bool
	}{{"zeros", 0, true}, {"some", 8 << 20, true}, {"all", size, false}, {"beside the rest", 60 << 20, false}} {
		ram, err := os.Create(filepath.Join(t.TempDir(), "ram"))
		if err != nil {
			t.Fatal(err)
		}
		defer ram.Close()
		content := append(bytes.Repeat([]byte{1}, c.written), make([]byte, size-c.written)...)
		if _, err := ram.Write(content); err != nil {
			t.Fatal(err)
		}
		v := &vm{plan: &plan.Plan{Memory: plan.Memory{Size: size, Near: []plan.Near{{Size: size}}}}, ram: ram}
		err = p.checkSpace(t.Context(), v, 0)
		if full := errors.As(err, new(*memory.SpaceError)); full == c.fits || err != nil && !full {
			t.Errorf("%s: error %v, want room: %v", c.name, err, c.fits)
		}
	}
}
