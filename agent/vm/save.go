package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/memory"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
)

// Saver saves VMs to memory images.
type Saver struct {
	vms   *Registry
	tasks *background
	stats imageCounter
}

// Save writes a VM's memory and device state to a folder. If ctx ends before
// the image is there, the guest goes on and the save has failed.
func (s *Saver) Save(ctx context.Context, name string, o place.SaveOptions, progress func(shim.Progress)) (*nodev1.VirtualMachine, *nodev1.SaveResult, error) {
	m, err := s.vms.Get(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	begun := time.Now()
	result, err := s.save(ctx, m, o, progress)
	s.stats.count(begun, result.GetImageBytes(), err)
	if err != nil {
		return nil, nil, err
	}
	return m.Snapshot(), result, nil
}

func (s *Saver) save(ctx context.Context, m *VM, o place.SaveOptions, progress func(shim.Progress)) (*nodev1.SaveResult, error) {
	if err := m.place.CheckSave(o); err != nil {
		return nil, err
	}
	_, done, err := m.begin(ctx, lifecycle.Save)
	if err != nil {
		return nil, err
	}
	defer done()
	l := m.running()
	if l == nil {
		return nil, endedMeanwhile(m)
	}
	if why := l.lease.Unsaveable; why != "" {
		return nil, fault.Errorf(codes.FailedPrecondition, "%s can't be saved: %w", contract.ThisVM(m.name), &contract.Quoted{Sentence: why, Parts: l.lease.UnsaveableParts})
	}
	// Its devices may be others than at its start.
	if err := vmm.Saveable(l.vmm, m.Snapshot().GetStatus().GetEffectiveSpec()).Err(); err != nil {
		return nil, fault.Errorf(codes.FailedPrecondition, "%s can't be saved: %v", contract.ThisVM(m.name), err)
	}
	one := &saving{Saver: s, m: m, l: l, options: o, before: m.State()}
	result, err := one.attached(ctx, progress)
	if err != nil {
		return nil, contract.Errorf("saving %s: %w", contract.ThisVM(m.name), named(o.Directory, err))
	}
	return result, nil
}

// saving is one save under way.
type saving struct {
	*Saver
	m       *VM
	l       *live
	options place.SaveOptions
	before  lifecycle.State
	volume  *os.File // that is attached, and the folder made in; nil: none is
}

// attached runs the save with the volume that is attached for it, if one is. Until the volume
// is there, nothing is done with the VM.
func (s *saving) attached(ctx context.Context, progress func(shim.Progress)) (_ *nodev1.SaveResult, err error) {
	if s.options.Attachment == "" {
		return s.run(ctx, progress)
	}
	attacher, can := s.m.place.(place.Attacher)
	if !can {
		return nil, fault.Invalid("attachment_pod_uid", "nothing can be attached to this VM")
	}
	if s.volume, err = attacher.Attached(ctx, s.options.Attachment); err != nil {
		return nil, err
	}
	defer s.volume.Close()
	return s.run(ctx, progress)
}

func (s *saving) run(ctx context.Context, progress func(shim.Progress)) (*nodev1.SaveResult, error) {
	manifest, err := s.manifest()
	if err != nil {
		return nil, err
	}
	if err := s.announce(manifest.ID); err != nil {
		s.back(err)
		return nil, err
	}
	faultpoint.Reach("agent.save.announced")
	prepared, err := s.l.shim.Save(ctx, shim.Save{Directory: s.options.Directory, Attached: s.volume != nil, Manifest: manifest}, s.volume, progress)
	if err != nil {
		s.back(err)
		return nil, err
	}
	faultpoint.Reach("agent.save.prepared")
	if err := context.Cause(ctx); err != nil {
		// The guest is to go on whatever has become of the caller.
		err = errors.Join(err, s.l.shim.Abort(context.WithoutCancel(ctx)))
		s.back(err)
		return nil, err
	}
	// From here on the image may be there at any moment: a caller who goes away
	// does not undo it.
	ctx = context.WithoutCancel(ctx)
	committed, err := s.l.shim.Commit(ctx, shim.Commit{KeepRunning: s.options.KeepRunning})
	if err != nil {
		return nil, s.doubt(ctx, err)
	}
	faultpoint.Reach("agent.save.committed")
	if err := s.settle(ctx, committed); err != nil {
		return nil, err
	}
	return &nodev1.SaveResult{
		ImageId:     prepared.ImageID,
		MemoryBytes: prepared.MemoryBytes,
		StateBytes:  prepared.StateBytes,
		StoppedMs:   committed.Stopped.Milliseconds(),
		ImageBytes:  prepared.MemoryBytes + prepared.StateBytes + prepared.FilesBytes,
		Paused:      prepared.Paused || s.before == lifecycle.Paused, // which older shims don't say
	}, nil
}

// manifest is the run's, with the specification as it is by now and the image's id.
func (s *saving) manifest() (memory.Manifest, error) {
	m := s.l.lease.Manifest
	m.ID = memory.NewID()
	now := s.m.Snapshot().GetStatus().GetEffectiveSpec()
	if now == nil {
		return m, nil
	}
	var err error
	m.Specification, err = spec.MarshalJSON(now)
	return m, err
}

// announce writes down that the VM is being saved, and which image is about to be there, so
// that an agent that comes after this one knows where to look.
func (s *saving) announce(image string) error {
	return s.m.become(lifecycle.Saving, "saving to "+s.options.Directory, func(vm *nodev1.VirtualMachine) {
		if !s.options.KeepRunning {
			vm.Status.Image = &nodev1.ImageReference{Path: s.options.Directory, ImageId: image}
		}
	})
}

// settle brings the record up to what the shim has done.
func (s *saving) settle(ctx context.Context, c *shim.Committed) error {
	if c.Exit == nil {
		// Asked for: what events said of it meanwhile was part of the save.
		s.m.note(s.actual(), "saved to "+s.options.Directory+" and kept running")
		return nil
	}
	return over(ctx, s.l, nil) // the watch notes how it ended
}

// back is after a save that failed: the guest goes on as before, if it is
// still there.
func (s *saving) back(cause error) {
	if s.m.State() != lifecycle.Saving {
		return
	}
	state := s.before
	var refused *shim.Error
	if errors.As(cause, &refused) { // and has undone it
		state = s.actual()
	}
	message := fmt.Sprintf("the save failed: %v", named(s.options.Directory, cause))
	if errors.Is(cause, context.Canceled) {
		message = fmt.Sprintf("the save to %s was given up: who asked for it has gone", s.options.Directory)
	}
	s.m.note(state, message, func(vm *nodev1.VirtualMachine) {
		vm.Status.Image = nil
	})
}

// named is an error with the folder that it is about, once.
func named(dir string, err error) error {
	if strings.Contains(err.Error(), dir) {
		return err
	}
	return contract.Errorf("%s: %w", contract.ObjectName(dir), err)
}

// actual is the state of a guest that goes on after a save: as a rule that of before, but
// it may have stopped for a reason of its own, or not go on.
func (s *saving) actual() lifecycle.State {
	monitor, err := s.l.connected()
	if err != nil {
		return s.before
	}
	ctx, cancel := context.WithTimeout(s.tasks.ctx, statusPatience)
	defer cancel()
	status, err := monitor.Status(ctx)
	switch {
	case err != nil:
		return s.before
	case status.Running:
		return lifecycle.Running
	}
	return lifecycle.Paused
}

// doubt is after a commit that brought an error: a shim that answered says
// what is so; else its end, which the watch is about to note, will tell.
func (s *saving) doubt(ctx context.Context, err error) error {
	var refused *shim.Error
	if errors.As(err, &refused) {
		s.back(err)
		return err
	}
	if errOver := over(ctx, s.l, nil); errOver != nil {
		// It still runs: if the image is there, it is about to end as saved.
		if s.m.State() == lifecycle.Saving {
			s.m.note(s.before, fmt.Sprintf("the shim was lost at the end of the save to %s: whether the image is there is unknown: %v", s.options.Directory, err))
		}
		return errors.Join(err, errOver)
	}
	if s.m.State() == lifecycle.Saved {
		return fault.Errorf(codes.Unavailable, "the shim went away, but the image is there and the VM is saved: %w", err)
	}
	return err
}

// Saves counts those since the agent began.
func (s *Saver) Saves() ImageStats { return s.stats.get() }
