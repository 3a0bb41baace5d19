package server

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
)

// inVMM is a plan of a VM whose memory is in no file.
func (d *diskScene) inVMM() *plan.Plan {
	p := d.plan("well")
	p.Memory.Path, p.Memory.InVMM = "", true
	p.Files = slices.DeleteFunc(p.Files, func(f plan.File) bool { return f.Kind == plan.FileMemory })
	return p
}

// TestMemoryInVMM: memory that the VMM has to itself is saved and restored with its state.
func TestMemoryInVMM(t *testing.T) {
	d := newDiskScene(t, t.TempDir())
	d.check(d.launchPlan(d.inVMM()))
	dir := filepath.Join(d.root, "image")
	_, err := d.client.Save(d.ctx, d.saveArgs(dir), nil, nil)
	d.check(err)
	_, err = d.client.Commit(d.ctx, shim.Commit{})
	d.check(err)
	d.again()
	image, err := memory.Open(dir)
	d.check(err)
	defer image.Close()
	if got := image.Manifest().Layout; got != memory.LayoutStream {
		t.Errorf("layout %q, want %q", got, memory.LayoutStream)
	}
	p := d.inVMM()
	p.Restore = &plan.Restore{Directory: dir, ImageID: image.Manifest().ID}
	d.check(d.launchPlan(p))
}

// TestMemoryInVMMRefused: memory is in one place only, and an image has it where the VMM
// looks for it.
func TestMemoryInVMMRefused(t *testing.T) {
	d := newDiskScene(t, t.TempDir())
	image := d.saved()
	for name, c := range map[string]struct {
		change func(p *plan.Plan)
		want   string
	}{
		"a file, too":               {func(p *plan.Plan) { p.Memory.Path = d.ram }, "the one or the other"},
		"mapped from an image, too": {func(p *plan.Plan) { p.Restore = image.Restore(); p.Restore.Lazy = true }, "the one or the other"},
		"an image with a file":      {func(p *plan.Plan) { p.Restore = image.Restore() }, "has its memory in a file"},
	} {
		p := d.inVMM()
		c.change(p)
		if err := d.launchPlan(p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
