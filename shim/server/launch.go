package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/internal/trim"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/internal/console"
	"github.com/vmlet/vmlet/shim/internal/limits"
	"github.com/vmlet/vmlet/shim/internal/logfile"
	"github.com/vmlet/vmlet/shim/internal/ram"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// beginLaunch takes the files that came with the request; they stay the request's.
func (s *launcher) beginLaunch(c *conn, id uint64, args *shim.Launch, files []*os.File) (work, error) {
	driver, err := s.checkPlan(args.Plan)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.vm != nil:
		return nil, fault.Precondition("a shim has one VMM, and this one has had it")
	case s.closing:
		return nil, fault.Precondition("the shim is ending")
	}
	op, err := s.begin(opLaunch, c)
	if err != nil {
		return nil, err
	}
	l := &launch{
		s: s, op: op, driver: driver, received: files, progress: c.progress(id),
		leases: args.Leases,
		vm:     &vm{plan: args.Plan, keep: args.Keep, grace: args.Grace, plugs: newPlugs(), gone: make(chan struct{})},
		log:    s.log.With("vm", args.Plan.Name, "id", args.Plan.ID),
	}
	return func() (any, error) { return s.launch(l) }, nil
}

func (s *launcher) checkPlan(p *plan.Plan) (control.Driver, error) {
	if p == nil {
		return nil, fault.New(shim.CodeInvalid, "plan", "missing")
	}
	driver := s.o.Drivers[p.VMM]
	if p.Driver != nil {
		driver = s.o.Remote
	}
	switch {
	case p.Driver != nil && !filepath.IsAbs(p.Driver.Program):
		return nil, fault.New(shim.CodeInvalid, "driver.program", "%q is not an absolute path", p.Driver.Program)
	case driver == nil:
		return nil, fault.New(shim.CodeInvalid, "vmm", "%q is unknown to this shim", p.VMM)
	case !filepath.IsAbs(p.Program):
		return nil, fault.New(shim.CodeInvalid, "program", "%q is not an absolute path", p.Program)
	case p.Memory.Path != "" && !filepath.IsAbs(p.Memory.Path):
		return nil, fault.New(shim.CodeInvalid, "memory.path", "%q is not an absolute path", p.Memory.Path)
	case p.Memory.InVMM && (p.Memory.Path != "" || p.Restore != nil && p.Restore.Lazy):
		return nil, fault.New(shim.CodeInvalid, "memory.inVMM", "it is to be in a file, too: the one or the other")
	case p.Memory.Size == 0 || p.Memory.Size > 1<<62:
		return nil, fault.New(shim.CodeInvalid, "memory.size", "%d bytes make no sense", p.Memory.Size)
	}
	return driver, checkCompanions(p.Companions)
}

func (s *launcher) launch(l *launch) (any, error) {
	start, op := time.Now(), l.op
	faultpoint.Reach("shim.launch.begun")
	// A failed launch has left one, and this run is not to be taken for ended.
	err := s.state.Remove(shim.ExitName)
	if err == nil {
		err = l.run(op.ctx)
	}
	if undo := l.cleanUp(err == nil); undo != nil {
		l.log.Error("failed to clean up after the launch", "error", undo)
	}
	if err == nil && op.ctx.Err() != nil {
		err = context.Cause(op.ctx)
	}
	if err != nil {
		err = errors.Join(err, l.vm.undo.Run())
		faultpoint.Reach("shim.launch.undone")
		s.recordFailure(l.vm, err)
		l.log.Error("launch failed", "error", err)
		s.finish(op, func() { s.launchErr = err })
		return nil, err
	}
	faultpoint.Reach("shim.launch.continued")
	if l.lazyImage != nil {
		l.vm.verified = make(chan struct{})
	}
	companions := l.vm.companions // from here on the VM is guarded by mu
	s.finish(op, func() { s.vm, s.log, s.launchErr = l.vm, l.log, nil })
	l.log.Info("VMM runs", "pid", l.vm.proc().pid, "took", time.Since(start))
	if l.lazyImage != nil {
		l.vm.background.Go(func() {
			defer close(l.vm.verified)
			s.verify(l.verifying, l.vm, l.lazyImage)
		})
	}
	go s.ender.watch(l.vm)
	for _, c := range companions {
		go s.ender.attend(l.vm, c)
	}
	go s.guests.keepCredentials(l.vm)
	go trimMemory(l.log) // the agent need not wait for it
	return shim.Launched{VMMPID: l.vm.proc().pid}, nil
}

// trimMemory gives back what the last operation has needed: a shim mostly waits.
func trimMemory(log *slog.Logger) {
	if err := trim.Process(); err != nil {
		log.Warn("failed to give back memory", "error", err)
	}
}

// recordFailure writes down the end of a VMM that never came up.
func (s *launcher) recordFailure(v *vm, err error) {
	if v.proc() == nil {
		return
	}
	exit := &shim.Exit{Reason: shim.ReasonFailed, Time: time.Now().UTC(), RunID: s.o.RunID, LastWords: v.proc().words.Lines(lastWords)}
	exit.Code, exit.Signal = v.proc().status()
	s.record(exit)
}

// run leaves in vm.undo what takes back what it did, also if it fails.
func (l *launch) run(ctx context.Context) error {
	opener, err := l.prepare(ctx)
	if opener != nil {
		l.meanwhile.Push(func() error { opener.release(); return nil })
	}
	if err != nil {
		return err
	}
	faultpoint.Reach("shim.launch.prepared")
	if err := l.startCompanions(ctx, opener); err != nil {
		return err
	}
	if err := opener.all(ctx); err != nil {
		return err
	}
	if err := opener.pairs.complete(); err != nil {
		return fault.Invalid("", err)
	}
	if l.vm.kept, err = keep(l.vm.plan.Files, opener.files, ""); err != nil {
		return err
	}
	l.vm.undo.Push(func() error { l.s.dropKept(l.vm); return nil })
	l.opener, l.vm.disks, l.vm.placed = opener, opener.disks, l.placed
	if err := l.prepareLeases(); err != nil {
		return err
	}
	faultpoint.Reach("shim.launch.opened")
	if err := l.startFilling(ctx); err != nil {
		return err
	}
	if err := l.start(opener); err != nil {
		return err
	}
	faultpoint.Reach("shim.launch.started")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-l.vm.proc().done:
			cancel(l.vm.proc().failure())
		case <-ctx.Done():
		}
	}()
	l.watchCompanions(ctx, cancel)
	if err := explained(l.driver, l.vm.plan, l.vm.proc().explain(ctx, l.bringUp(ctx))); err != nil {
		return err
	}
	l.vm.leases.Serve()
	return nil
}

// prepare makes all that the VMM's files are made of.
func (l *launch) prepare(ctx context.Context) (*opener, error) {
	v := l.vm
	imageUndo := &l.meanwhile
	if v.plan.Restore != nil && v.plan.Restore.Lazy {
		imageUndo = &v.undo
	}
	var err error
	if l.image, err = l.s.source.openImage(ctx, v.plan, imageUndo); err != nil {
		return nil, err
	}
	if err := l.checkOnce(); err != nil {
		return nil, err
	}
	if err := l.placeCPUs(); err != nil {
		return nil, err
	}
	ram, err := l.makeRAM(ctx)
	if err != nil {
		return nil, err
	}
	var moved []memory.File
	if l.image != nil {
		moved = l.image.Manifest().Files
	}
	o := &opener{moved: moved, plan: v.plan, run: l.s.run, stateDir: l.s.o.StateDir, lock: l.s.o.listLock(), sockets: l.s.o.sockets(), volumes: l.s.o.volumes(), received: l.received, pairs: new(pairs), ram: ram, watched: l.s.o.watchedDevices(), undo: &v.undo}
	return o, l.makeConsole(o)
}

// makeRAM returns the file that the VMM maps.
func (l *launch) makeRAM(ctx context.Context) (*os.File, error) {
	v := l.vm
	if v.plan.Memory.Path != "" {
		var err error
		if v.ram, v.freeRAM, err = ram.Make(v.plan.Memory, v.plan.User); err != nil {
			return nil, err
		}
		v.undo.Push(v.freeRAM)
		return v.ram, l.allocateNear(ctx)
	}
	if l.image == nil || !v.plan.Restore.Lazy { // the VMM has RAM to itself
		return nil, nil
	}
	l.lazyImage = l.image
	v.imageBytes = l.image.Manifest().DataBytes
	verifying, cancel := context.WithCancel(context.Background())
	v.undo.Push(func() error { cancel(); v.background.Wait(); return nil })
	l.verifying = verifying
	// As a rule the VMM opens it once: the access is taken back when it is up.
	until := &l.meanwhile
	for _, f := range v.plan.Files {
		if f.Kind == plan.FileMemory && f.Granted {
			until = &v.undo
		}
	}
	err := grant(v.plan.User, l.image.MemoryFile(), l.s.o.listLock(), false, until)
	if err != nil {
		err = contract.Errorf("%w: let others read it, or restore it eagerly%s", err, contract.Advice("without --lazy"))
	}
	return l.image.MemoryFile(), err
}

// makeConsole gives the opener the VMM's end of the console, in the one form or the
// other.
func (l *launch) makeConsole(o *opener) error {
	v := l.vm
	log, err := logfile.Open(l.s.state, shim.ConsoleLogName, l.s.o.ConsoleLog)
	if err != nil {
		return err
	}
	v.undo.Push(log.Close)
	var sink io.Writer = log
	if l.s.o.Console != nil {
		sink = io.MultiWriter(log, l.s.o.Console)
	}
	if v.plan.Terminal {
		v.console, l.stdin, l.stdout, err = console.NewTerminal(sink)
		o.own = append(o.own, l.stdin, l.stdout)
	} else {
		v.console, o.console, err = console.New(sink)
		o.own = append(o.own, o.console)
	}
	if err != nil {
		return err
	}
	v.undo.Push(func() error { v.console.Close(); v.display.Close(); return nil })
	return nil
}

// startFilling begins to fill RAM, and returns when the VMM may map it.
func (l *launch) startFilling(ctx context.Context) error {
	v := l.vm
	if l.image == nil || v.ram == nil || l.image.Manifest().Layout != memory.LayoutRaw {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	l.filling = fill(ctx, l.image, v.ram, v.plan.Memory.Near, l.progress)
	l.meanwhile.Push(func() error { cancel(); <-l.filling.done; return nil })
	select {
	case <-l.filling.started:
		return nil
	case <-l.filling.done:
		return l.filling.err
	}
}

// start starts the VMM's process.
func (l *launch) start(o *opener) error {
	v := l.vm
	log, err := l.openLog()
	if err != nil {
		return err
	}
	if err := errors.Join(limits.AllowLocking(v.plan.LockedMemory), limits.BoundThreads(v.plan.User)); err != nil {
		return err
	}
	proc, err := startPrepared(v.plan, o.files, l.stdin, l.stdout, log, l.onThread)
	if err != nil {
		return err
	}
	v.engine.Store(&engine{proc: proc})
	v.undo.Push(func() error {
		err := proc.kill()
		<-proc.done
		return err
	})
	// From here their other ends see it if the VMM ends.
	o.release()
	return nil
}

// openLog opens the log of what the VMM says, and of what its companions say. It is opened once.
func (l *launch) openLog() (io.Writer, error) {
	if l.output != nil {
		return l.output, nil
	}
	log, err := logfile.Open(l.s.state, shim.VMMLogName, l.s.o.VMMLog)
	if err != nil {
		return nil, err
	}
	l.vm.undo.Push(log.Close)
	l.output, l.vm.output = log, log
	return log, nil
}

// bringUp connects to the VMM and has it run, or are paused, as planned.
func (l *launch) bringUp(ctx context.Context) error {
	v := l.vm
	l.progress(shim.Progress{Step: "starting " + v.proc().name})
	start := time.Now()
	machine, err := l.driver.Connect(ctx, l.link())
	if err != nil {
		return err
	}
	v.engine.Store(&engine{v.proc(), machine})
	v.undo.Push(machine.Close)
	faultpoint.Reach("shim.launch.connected")
	l.log.Debug("the VMM answers", "took", time.Since(start))
	if err := l.dedicate(ctx); err != nil {
		return err
	}
	if err := l.load(ctx); err != nil {
		return err
	}
	faultpoint.Reach("shim.launch.loaded")
	if err := l.markUsed(ctx); err != nil {
		return err
	}
	if v.plan.Paused {
		_, err := machine.Stop(ctx)
		return err
	}
	return l.s.proceed(ctx, v)
}

func (l *launch) link() control.Link {
	run := l.s.run
	return control.Link{
		Plan: l.vm.plan, PID: l.vm.proc().pid, Received: l.received, Events: l.opener.events, Folder: l.opener.folder, Buffered: l.opener.buffered, Log: l.log, VCPUs: l.placed.VCPUs,
		Reset: func() { l.s.guests.thawed(l.vm) },
		Dial:  func(ctx context.Context, name string) (net.Conn, error) { return run.Dial(ctx, name) },
		Listen: func(name string) (*net.UnixListener, error) {
			listener, err := run.ListenHere(name)
			if err == nil {
				l.vm.undo.Push(func() error { return run.Remove(name) })
			}
			return listener, err
		},
	}
}

// load brings an image's state back.
func (l *launch) load(ctx context.Context) error {
	if l.image == nil {
		return nil
	}
	start := time.Now()
	if l.filling != nil {
		select {
		case <-l.filling.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if l.filling.err != nil {
			return l.filling.err
		}
	}
	l.log.Debug("RAM is filled", "waited", time.Since(start))
	l.progress(shim.Progress{Step: "loading device state"})
	// Filling RAM may have taken minutes.
	if err := l.s.checkHeld(ctx, l.vm); err != nil {
		return err
	}
	shared := l.image.Manifest().Layout == memory.LayoutRaw
	if err := l.vm.machine().LoadState(ctx, l.image.StateFile(), shared); err != nil {
		return contract.Errorf("load the device state in %s: %w%s", contract.ObjectName(l.image.Path()), err, l.vm.proc().said())
	}
	return l.s.holdAgain(ctx, l.vm)
}

// prepareLeases makes a launch's servers. They answer once the guest runs; what it asks
// before waits in the sockets.
func (l *launch) prepareLeases() error {
	l.vm.undo.Push(l.vm.leases.EndAll)
	for i := range l.leases {
		one := &l.leases[i]
		if err := l.vm.leases.Add(one.Device, one, l.received, l.s.o.ResolvConf, l.s.log); err != nil {
			return fmt.Errorf("leases[%d]: %w", i, err)
		}
	}
	return nil
}
