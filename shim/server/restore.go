package server

import (
	"context"
	"errors"
	"os"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
	"github.com/vmlet/vmlet/shim/server/undo"
)

// openImage opens the image that a plan goes on from, sees that it is the one
// that was planned with, and that all but its RAM is whole. Both the image and
// its lock last until undo.
func (s *source) openImage(ctx context.Context, p *plan.Plan, undo *undo.Stack) (*memory.Image, error) {
	if p.Restore == nil {
		return nil, nil
	}
	img, err := s.findImage(p)
	if err != nil {
		return nil, err
	}
	undo.Push(img.Close)
	lock, err := img.LockShared()
	switch {
	case err == nil:
		undo.Push(lock.Unlock)
	case !errors.Is(err, errors.ErrUnsupported):
		return nil, err
	}
	if err := checkImage(p, img.Manifest()); err != nil {
		return nil, err
	}
	return img, img.VerifyState(ctx)
}

func checkImage(p *plan.Plan, m *memory.Manifest) error {
	dir := p.Restore.Directory
	switch {
	case m.ID != p.Restore.ImageID:
		return fault.Precondition("%s: the image there is now %s, not %s: it was replaced meanwhile, try again", contract.ObjectName(dir), m.ID, p.Restore.ImageID)
	case m.MemorySize != p.Memory.Size:
		return fault.New(shim.CodeInvalid, "memory.size", "%d bytes, and the image in %s has %d", p.Memory.Size, contract.ObjectName(dir), m.MemorySize)
	case m.VMM.Name != p.VMM:
		return fault.New(shim.CodeInvalid, "vmm", "%s, and the image in %s is %s's", p.VMM, contract.ObjectName(dir), m.VMM.Name)
	case p.Restore.Lazy && m.Layout != memory.LayoutRaw:
		return fault.Precondition("%s: an image with layout %s can't be restored lazily: restore it eagerly%s", contract.ObjectName(dir), m.Layout, contract.Advice("without --lazy"))
	case p.Memory.InVMM && m.Layout != memory.LayoutStream:
		return fault.Precondition("%s: an image with layout %s has its memory in a file, and the VMM loads it with its state only", contract.ObjectName(dir), m.Layout)
	case !p.Restore.Lazy && !p.Memory.InVMM && p.Memory.Path == "":
		return fault.New(shim.CodeInvalid, "memory.path", "missing: only a VM that maps an image, or has its memory in the VMM, has no RAM file")
	}
	return nil
}

// filling is RAM being filled while the VMM starts.
type filling struct {
	started chan struct{} // closed when the VMM may map the file
	done    chan struct{} // closed when err is set
	err     error
}

// fill starts to fill RAM from an image that has it in a file of its own.
func fill(ctx context.Context, img *memory.Image, ram *os.File, near []plan.Near, progress func(shim.Progress)) *filling {
	f := &filling{started: make(chan struct{}), done: make(chan struct{})}
	first, allocated := true, uint64(0)
	for _, part := range near {
		allocated += part.Size
	}
	go func() {
		defer close(f.done)
		f.err = img.Fill(ctx, ram, allocated, func(done, total uint64) {
			if first { // RAM has been seen to be fresh: from now on it may be touched
				first = false
				close(f.started)
			}
			progress(shim.Progress{Step: "filling memory", Done: done, Total: total})
		})
	}()
	return f
}
