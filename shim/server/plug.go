package server

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/shim/server/fault"
	"github.com/vmlet/vmlet/shim/server/undo"
)

const (
	// maxNotes bounds the devices that have come and gone, which the shim tells of.
	maxNotes = 512
	// maxDetach bounds how long a guest is waited for.
	maxDetach = 10 * time.Minute
)

// devices is the room for devices that come and go while the VM runs.
type devices struct{ *session }

// plugger begins an operation on devices; s.mu is held.
func (s *devices) plugger(name string, owner *conn) (*operation, *vm, control.Plugger, error) {
	v, err := s.running()
	switch {
	case err != nil:
		return nil, nil, nil, err
	case s.prepared != nil:
		return nil, nil, nil, fault.Precondition("a save into %s is under way", s.prepared.directory)
	case v.stopping != nil, v.killed, s.closing:
		return nil, nil, nil, fault.Precondition("the VM is being stopped")
	}
	machine, can := v.machine().(control.Plugger)
	if !can {
		return nil, nil, nil, fault.Precondition("devices of a %s can't come and go while it runs: stop the VM, change its specification and start it again", v.plan.VMM)
	}
	op, err := s.begin(name, owner)
	return op, v, machine, err
}

// beginAttach takes the files that came with the request; they stay the request's.
func (s *devices) beginAttach(c *conn, args *shim.Attach, files []*os.File) (work, error) {
	a := args.Attachment
	if a == nil || a.Device == "" {
		return nil, fault.New(shim.CodeInvalid, "attachment", "missing, or without a device")
	}
	for _, f := range a.Files {
		if f.Kind != plan.FilePath && f.Kind != plan.FileReceived {
			return nil, fault.New(shim.CodeInvalid, f.Field, "a file of kind %q doesn't come while the VMM runs", f.Kind)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	op, v, machine, err := s.plugger(opAttach, c)
	if err != nil {
		return nil, err
	}
	if v.plugs.attached[a.Device] != nil {
		s.over(op)
		return nil, fault.Precondition("%s is attached already", a.Device)
	}
	if len(v.plugs.notes) >= maxNotes {
		s.over(op)
		return nil, fault.Precondition("%d devices have come and gone: save and restore the VM, or stop and start it", maxNotes)
	}
	return func() (any, error) { return nil, s.attachDevice(op, v, machine, args, files) }, nil
}

func (s *devices) attachDevice(op *operation, v *vm, machine control.Plugger, args *shim.Attach, files []*os.File) error {
	a, undo := args.Attachment, new(undo.Stack)
	o := &opener{
		plan: &plan.Plan{User: v.plan.User, Files: a.Files}, run: s.run, stateDir: s.o.StateDir, lock: s.o.listLock(), sockets: s.o.sockets(), volumes: s.o.volumes(), received: files, undo: undo,
	}
	err := o.all(op.ctx)
	if err == nil && args.Lease != nil {
		undo.Push(func() error { return v.leases.End(a.Device) })
		err = v.leases.Add(a.Device, args.Lease, files, s.o.ResolvConf, s.log)
	}
	if err == nil {
		faultpoint.Reach("shim.attach.opened")
		err = machine.Attach(op.ctx, control.Attachment{Instructions: a.Instructions, Files: o.files, Buffered: o.buffered})
	}
	var kept []keptFile
	if err == nil {
		var errKeep error
		if kept, errKeep = keep(a.Files, o.files, a.Device); errKeep != nil { // its VMM can't be renewed then, and says so
			s.log.Warn("failed to keep the files of a device", "device", a.Device, "error", errKeep)
		}
	}
	o.release()
	if err == nil && op.ctx.Err() != nil {
		// Nobody waits for it any more; anyone who comes next finds it by its note.
		s.log.Warn("a device was attached for an agent that has gone", "device", a.Device)
	}
	if err != nil {
		err = errors.Join(v.proc().explain(op.ctx, err), undo.Run())
		s.log.Info("a device was not attached", "device", a.Device, "error", err)
		s.finish(op, func() {})
		return err
	}
	faultpoint.Reach("shim.attach.attached")
	v.leases.Serve()
	v.undo.Push(undo.Run)
	s.finish(op, func() {
		v.kept = append(v.kept, kept...)
		v.disks = append(v.disks, o.disks...)
		v.plugs.attached[a.Device] = undo
		v.plugs.put(a.Device, args.Note)
		s.tell(shim.Event{Note: args.Note}, op.owner)
	})
	s.log.Info("a device is attached", "device", a.Device)
	return nil
}

func (s *devices) beginDetach(c *conn, args *shim.Detach) (work, error) {
	if d := args.Detachment; d == nil || d.Device == "" {
		return nil, fault.New(shim.CodeInvalid, "detachment", "missing, or without a device")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	op, v, machine, err := s.plugger(opDetach, c)
	if err != nil {
		return nil, err
	}
	if cancel := v.plugs.leaving[args.Detachment.Device]; cancel != nil {
		cancel()
		delete(v.plugs.leaving, args.Detachment.Device)
	}
	return func() (any, error) { return nil, s.detachDevice(op, v, machine, args) }, nil
}

func (s *devices) detachDevice(op *operation, v *vm, machine control.Plugger, args *shim.Detach) error {
	ctx, cancel := context.WithTimeout(op.ctx, min(max(args.Within, 0), maxDetach))
	defer cancel()
	d := args.Detachment
	err := machine.Detach(ctx, d.Instructions)
	faultpoint.Reach("shim.detach.detached")
	if err == nil {
		s.takeBack(v, d.Device)
		// Not to the agent that gets the reply: another may have come and been welcomed meanwhile.
		s.finish(op, func() { s.gone(v, args); s.tell(shim.Event{Note: args.Note}, op.owner) })
		s.log.Info("a device is detached", "device", d.Device)
		return nil
	}
	keeps := errors.Is(err, control.ErrGuestKeeps)
	if op.ctx.Err() != nil || !keeps {
		err = v.proc().explain(op.ctx, err)
	} else {
		err = fault.New(shim.CodeTimeout, "", "the guest has not let it go within %v: it still has it, and may let it go later", args.Within)
	}
	s.log.Info("a device was not detached", "device", d.Device, "error", err)
	s.finish(op, func() {
		if keeps {
			s.awaitGone(v, machine, args)
		}
	})
	return err
}

// takeBack undoes what was made for a device that no longer exists. It may wait for a lock of
// another shim's: s.mu is not held, and the operation on the device still under way.
func (s *devices) takeBack(v *vm, device string) {
	s.mu.Lock()
	undo := v.plugs.attached[device]
	s.mu.Unlock()
	_ = v.leases.End(device) // one of the launch has no undo of its own
	if undo == nil {
		return
	}
	if err := undo.Run(); err != nil {
		s.log.Error("failed to clean up after a device", "device", device, "error", err)
	}
}

// gone notes that a device no longer exists; s.mu is held.
func (s *devices) gone(v *vm, args *shim.Detach) {
	d := args.Detachment
	v.dropKeptOf(d.Device, d.DiskName)
	if d.DiskName != "" {
		v.disks = slices.DeleteFunc(v.disks, func(w watchedDisk) bool {
			if w.name != d.DiskName {
				return false
			}
			w.close() // what closes it at the end finds it closed
			return true
		})
	}
	delete(v.plugs.attached, d.Device)
	v.plugs.put(d.Device, args.Note)
}

// awaitGone tidies up after a guest that lets a device go later, and tells agents;
// s.mu is held.
func (s *devices) awaitGone(v *vm, machine control.Plugger, args *shim.Detach) {
	device := args.Detachment.Device
	ctx, cancel := context.WithCancel(context.Background())
	v.plugs.leaving[device] = cancel
	v.undo.Push(func() error { cancel(); return nil })
	v.background.Go(func() {
		defer cancel()
		if err := machine.AwaitGone(ctx, args.Detachment.Instructions); err != nil {
			return // asked again, or the VMM has ended
		}
		op := s.whenFree(ctx, v, device)
		if op == nil {
			return
		}
		call, done := context.WithTimeout(op.ctx, callTime)
		defer done()
		err := machine.Detach(call, args.Detachment.Instructions)
		if err != nil {
			s.log.Error("failed to clean up after a device that the guest has released", "device", device, "error", err)
		}
		s.takeBack(v, device)
		s.finish(op, func() {
			delete(v.plugs.leaving, device)
			s.gone(v, args)
			s.tell(shim.Event{Note: args.Note}, nil)
		})
		s.log.Info("the guest has released a device after all", "device", device)
	})
}

// whenFree begins an operation when there is none; nil: it is not wanted any more.
func (s *devices) whenFree(ctx context.Context, v *vm, device string) *operation {
	for {
		s.mu.Lock()
		busy, prepared := s.op, s.prepared
		if ctx.Err() != nil || v.ended || s.closing {
			s.mu.Unlock()
			return nil
		}
		if busy == nil && prepared == nil {
			op, _ := s.begin(opDetach, nil)
			s.mu.Unlock()
			return op
		}
		s.mu.Unlock()
		done := make(<-chan struct{})
		if busy != nil {
			done = busy.done
		}
		select {
		case <-done:
		case <-time.After(callTime): // a save that waits for its commit
		case <-ctx.Done():
		}
	}
}
