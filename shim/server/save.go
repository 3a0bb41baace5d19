package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/shim/server/fault"
)

const (
	// stateRoom is added to the space that a save needs, in bytes: device state
	// of less than 1 MiB, a display's memory, the manifest, the filesystem's own.
	stateRoom = 32 << 20
	// leastRoom, in bytes: a filesystem with less was full when device state was written.
	leastRoom = 1 << 20
)

func (s *saves) beginSave(c *conn, id uint64, args *shim.Save, files []*os.File) (work, error) {
	parent, err := s.savesInto(args, files)
	if err != nil {
		return nil, err
	}
	rest, err := s.beginSaveInto(c, id, args, parent)
	if err != nil {
		closeBehind(parent)
	}
	return rest, err
}

// savesInto returns the folder that the image's is made in, nil if the request names it by
// its path. It is the save's own.
func (s *saves) savesInto(args *shim.Save, files []*os.File) (*os.File, error) {
	invalid := func(format string, of ...any) (*os.File, error) {
		return nil, fault.New(shim.CodeInvalid, "directory", format, of...)
	}
	switch {
	case !args.Attached && !filepath.IsAbs(args.Directory):
		return invalid("%q is not an absolute path", args.Directory)
	case !args.Attached:
		return nil, nil
	case s.o.Pod == nil:
		return invalid("only a VM in a pod is saved to a volume that is attached: name a folder by its path")
	case args.Directory == "" || args.Directory == "." || args.Directory == ".." || len(args.Directory) > unix.NAME_MAX || strings.ContainsAny(args.Directory, "/\x00"):
		return invalid("%.300q is not the name of a folder in the volume that is attached", args.Directory)
	}
	return attachedFolder(files)
}

func (s *saves) beginSaveInto(c *conn, id uint64, args *shim.Save, parent *os.File) (work, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.running()
	switch {
	case err != nil:
		return nil, err
	case s.prepared != nil:
		return nil, fault.Precondition("a save into %s is under way", s.prepared.directory)
	case s.rollback.clearing != "":
		return nil, fault.Precondition("what an earlier save has written to %s is still to be removed, as the disk there does not answer: see to that disk (for NFS: to the server and the network), or kill the VM", s.rollback.clearing)
	case v.stopping != nil, v.killed, s.closing:
		return nil, fault.Precondition("the VM is being stopped")
	case v.freeze.thaw != nil: // the image would have nobody who thaws it
		return nil, fault.Precondition("the guest's file systems are frozen: thaw them first, or wait for the end of the freeze's time")
	case s.damaged != "":
		return nil, s.fromDamaged()
	}
	op, err := s.begin(opSave, c)
	if err != nil {
		return nil, err
	}
	p := &prepared{owner: op.owner, directory: args.Directory, parent: parent, manifest: &args.Manifest}
	return func() (any, error) { return s.save(op, v, p, c.progress(id)) }, nil
}

func (s *saves) save(op *operation, v *vm, p *prepared, progress func(shim.Progress)) (any, error) {
	err := s.prepare(op.ctx, p, v, progress)
	if err == nil {
		if reply := s.keep(op, p); reply != nil {
			faultpoint.Reach("shim.save.prepared")
			return reply, nil
		}
	}
	if err == nil {
		err = context.Cause(op.ctx)
	} else {
		err = v.proc().explain(op.ctx, err)
	}
	if errors.Is(err, control.ErrMonitorClosed) {
		err = fmt.Errorf("%w, and lives on: it can't be saved any more: kill the VM, and start it again", err)
	}
	s.log.Error("save failed", "directory", p.directory, "error", err)
	err = errors.Join(err, s.rollback.undoSave(v, p))
	s.finish(op, func() {})
	return nil, err
}

// keep holds what was saved until its commit; nil: it was aborted just now.
func (s *saves) keep(op *operation, p *prepared) *shim.Prepared {
	s.mu.Lock()
	defer s.mu.Unlock()
	if op.ctx.Err() != nil {
		return nil
	}
	s.prepared = p
	p.expire = time.AfterFunc(s.o.CommitWithin, func() { s.rollback.expired(p) })
	s.over(op)
	m := p.manifest
	s.log.Info("saved, waiting for the commit", "directory", p.directory, "bytes", m.DataBytes, "state", m.StateSize, "disks", p.filesBytes, "stopped", time.Since(p.since))
	return &shim.Prepared{ImageID: m.ID, MemoryBytes: m.DataBytes, StateBytes: m.StateSize, FilesBytes: p.filesBytes, Paused: !p.ran}
}

// fromDamaged refuses a save that would make of what is damaged an image that looks
// whole; s.mu is held.
func (s *saves) fromDamaged() error {
	return fault.New(shim.CodeDamaged, "", "the guest's memory is mapped from an image that is damaged (%w), and can't be saved: restore a whole image",
		&contract.Quoted{Sentence: s.damaged, Parts: s.damagedParts})
}

// awaitVerified waits, while the guest goes on, until it is known whether the image that
// its memory is mapped from is whole.
func (s *saves) awaitVerified(ctx context.Context, v *vm, progress func(shim.Progress)) error {
	if v.verified == nil {
		return nil
	}
	progress(shim.Progress{Step: "checking the image that memory is mapped from"})
	select {
	case <-v.verified:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.damaged != "" {
		return s.fromDamaged()
	}
	return nil
}

// prepare stops the guest and writes all but the manifest. After an error
// undoSave has to follow.
func (s *saves) prepare(ctx context.Context, p *prepared, v *vm, progress func(shim.Progress)) (err error) {
	var state *os.File
	if err := p.onDisk(ctx, func() (err error) { state, err = s.makeImage(ctx, p, v); return err }); err != nil {
		return err
	}
	if err := s.awaitVerified(ctx, v, progress); err != nil {
		return err
	}
	// An image must not make good again what has changed under a guest that was paused.
	if err := s.checkHeld(ctx, v); err != nil {
		return err
	}
	progress(shim.Progress{Step: "saving device state"})
	p.since = time.Now()
	if p.ran, err = v.machine().Stop(ctx); err != nil {
		return fmt.Errorf("stop the guest: %w", err)
	}
	faultpoint.Reach("shim.save.stopped")
	s.unhold(v) // a VMM may let the guest go on for a moment
	if err := p.saveState(ctx, v, state); err != nil {
		return contract.Errorf("save the device state to %s: %w", contract.ObjectName(state.Name()), err)
	}
	faultpoint.Reach("shim.save.state-written")
	if err := s.settleDisks(ctx, p, v); err != nil {
		return err
	}
	// RAM comes after it: what devices had under way when the guest stopped may
	// have been written there until now.
	return p.onDisk(ctx, func() error {
		if err := p.copyMemory(ctx, v, progress); err != nil {
			return err
		}
		faultpoint.Reach("shim.save.memory-written")
		if err := s.copyMade(ctx, p, v, progress); err != nil {
			return err
		}
		faultpoint.Reach("shim.save.disks-written")
		if err := p.image.Seal(ctx); err != nil {
			return err
		}
		held := s.heldDisks(v)
		if err := unchanged(held); err != nil {
			return err
		}
		p.manifest.Disks = diskIdentities(held)
		return p.complete(v, state)
	})
}

// settleDisks makes the disks as they are now those of the image.
func (s *saves) settleDisks(ctx context.Context, p *prepared, v *vm) error {
	disks := v.disks
	var ids []disk.Identity
	err := p.onDisk(ctx, func() (err error) { ids, err = settleDisks(disks); return err })
	if err == nil {
		s.hold(v, ids)
	}
	return err
}

// makeImage makes the folder and the file for the device state. What an earlier shim of
// this VM had not lived to remove there is removed.
func (s *saves) makeImage(ctx context.Context, p *prepared, v *vm) (state *os.File, err error) {
	s.clearUsed(p)
	if p.parent != nil {
		p.image, err = memory.CreateIn(p.parent, p.directory, memory.Options{})
	} else {
		p.image, err = s.createByPath(p)
	}
	if err != nil {
		return nil, err
	}
	faultpoint.Reach("shim.save.folder-made")
	made, err := s.madeBytes(v)
	if err != nil {
		return nil, err
	}
	if err := p.checkSpace(ctx, v, made); err != nil {
		return nil, err
	}
	return p.image.StateFile()
}

// createByPath makes an image's folder that is found again by its path.
func (s *saves) createByPath(p *prepared) (*memory.Writer, error) {
	if r, err := shim.ReadRemains(s.o.RunDir); err == nil && r.Directory == filepath.Clean(p.directory) {
		if err := r.Remove(); err != nil {
			s.log.Warn("failed to remove what is left of an earlier save", "error", err)
		}
	}
	note := func(r memory.Remains) error { return writeJSON(s.run, shim.SavingName, r) }
	return memory.Create(p.directory, memory.Options{Note: note})
}

func (p *prepared) copyMemory(ctx context.Context, v *vm, progress func(shim.Progress)) error {
	p.manifest.Layout, p.manifest.MemorySize = memory.LayoutStream, v.plan.Memory.Size
	if v.ram == nil {
		return nil
	}
	stats, err := p.image.CopyMemory(ctx, v.ram, v.plan.Memory.Size, func(done, total uint64) {
		progress(shim.Progress{Step: "saving memory", Done: done, Total: total})
	})
	p.manifest.Layout, p.manifest.DataBytes = memory.LayoutRaw, stats.DataBytes
	return err
}

// complete fills in what the shim knows better than the agent.
func (p *prepared) complete(v *vm, state *os.File) error {
	st, err := state.Stat()
	if err != nil {
		return err
	}
	m := p.manifest
	m.StateSize = uint64(st.Size())
	if m.ID == "" {
		m.ID = memory.NewID()
	}
	if len(m.Regions) == 0 {
		m.Regions = []memory.Region{{Name: "ram", Size: v.plan.Memory.Size}}
	}
	return nil
}

// checkSpace refuses a save that has no chance before the guest is stopped; made are the
// bytes of disks that go with it.
func (p *prepared) checkSpace(ctx context.Context, v *vm, made uint64) error {
	if v.ram != nil {
		needed, err := memory.TouchedBytes(v.ram)
		if err == nil && len(v.plan.Memory.Near) > 0 && p.image.CheckSpace(needed+made+stateRoom) != nil {
			// All of it is allocated, whatever the guest uses. That takes as long as to read it, so only where it decides.
			needed, err = memory.DataBytes(ctx, v.ram, v.plan.Memory.Size)
		}
		if err != nil {
			return err
		}
		return p.image.CheckSpace(needed + made + stateRoom)
	}
	// Private RAM is what the image has and what has been changed since.
	changed, err := residentAnonymous(v.proc().pid)
	if err != nil {
		return err
	}
	return p.image.CheckSpace(v.streamHeaders() + made + stateRoom + min(v.imageBytes+changed, v.plan.Memory.Size))
}
