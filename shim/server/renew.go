package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/internal/console"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// renewals is the room in which one VMM takes the place of another, under a guest that runs. What may never be: that both
// run it, or that neither does though one could. So
//
//   - until the guest has been stopped, the first VMM has it, and the second never runs it;
//   - the second begins when it has all of the guest and the first can't go on by itself: its process is stopped (SIGSTOP),
//     so that no client of its monitor can let the guest run there;
//   - if the second refuses to begin, it is killed before the first goes on. If it is unknown whether it has begun, the first
//     never does again.
//
// Both end with the shim.
type renewals struct {
	*session
	launcher *launcher
	guests   *guests
}

const (
	// renewTime bounds a renewal; the guest does not notice most of it.
	renewTime = 2 * time.Minute
	// standTime bounds how long the guest may be stopped: then it goes on where it was.
	standTime = 5 * time.Second
	// fenceTime bounds how long a process takes to stop, or to begin to end.
	fenceTime = time.Second
	// leaveTime is how long a VMM that has handed its guest over may take to be gone before the agent hears of its success.
	leaveTime = 5 * time.Second
	// firstToDie is the score by which the kernel kills a VMM first that has no guest yet (proc(5), oom_score_adj).
	firstToDie = "1000"
)

// renewal is one VMM taking the place of another.
type renewal struct {
	s    *renewals
	op   *operation
	vm   *vm
	old  *engine
	next *launch // its vm has only what is the new VMM's
	log  *slog.Logger

	console *console.Replacement
	taps    *tapGuard // nil: there are no taps
	// named: the new VMM's sockets have their names.
	named atomic.Bool
	// stopped is when the guest was stopped; zero: it was not.
	stopped time.Time
}

// beginRenew takes the files that came with the request; they stay the request's.
func (s *renewals) beginRenew(c *conn, id uint64, args *shim.Renew, files []*os.File) (work, error) {
	driver, err := s.launcher.checkPlan(args.Plan)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.running()
	if err == nil {
		err = s.renewable(v, args.Plan)
	}
	if err != nil {
		return nil, err
	}
	op, err := s.begin(opRenew, c)
	if err != nil {
		return nil, err
	}
	r := &renewal{s: s, op: op, vm: v, old: v.engine.Load(), log: s.log}
	r.next = &launch{
		s: s.launcher, op: op, driver: driver, received: files, progress: c.progress(id), log: s.log, output: v.output, placed: v.placed,
		vm: &vm{plan: args.Plan, console: v.console, ram: v.ram},
	}
	return func() (any, error) { return s.renew(r, args) }, nil
}

// renewable refuses what would be lost on the way; s.mu is held.
func (s *renewals) renewable(v *vm, p *plan.Plan) error {
	_, sends := v.machine().(control.Sender)
	switch {
	case s.prepared != nil:
		return fault.Precondition("a save into %s is under way", s.prepared.directory)
	case v.stopping != nil, v.killed, s.closing:
		return fault.Precondition("the VM is being stopped")
	case v.freeze.thaw != nil:
		return fault.Precondition("the guest's file systems are frozen: thaw them first")
	case len(v.plugs.leaving) > 0:
		return fault.Precondition("the guest has not let go of a device that is being detached: try again when it has")
	case !sends:
		return fault.Precondition("a %s can't hand its guest over to another one: stop the VM and start it", v.plan.VMM)
	case v.ram == nil:
		return fault.Precondition("the guest's memory is mapped from its image, or the VMM's own, and no other VMM can have it: stop the VM and start it, or save it and restore it eagerly")
	case len(v.companions) > 0:
		return fault.Precondition("a process runs beside the VMM, %s, that another VMM can't have: stop the VM and start it", v.companions[0].what.Name)
	}
	return s.samePlace(v.plan, p)
}

// samePlace refuses the plan of another VM.
func (s *renewals) samePlace(now, p *plan.Plan) error {
	sameUser := (now.User == nil) == (p.User == nil) && (p.User == nil || now.User.UID == p.User.UID && now.User.GID == p.User.GID)
	switch {
	case p.VMM != now.VMM || p.Driver != nil:
		return fault.New(shim.CodeInvalid, "vmm", "%q: the guest is in a %s, and goes to no other VMM", p.VMM, now.VMM)
	case p.ID != now.ID:
		return fault.New(shim.CodeInvalid, "id", "%q is not the VM's, %q", p.ID, now.ID)
	case p.Memory.Size != now.Memory.Size || p.Memory.Path != now.Memory.Path:
		return fault.New(shim.CodeInvalid, "memory", "%d bytes in %q are not the guest's, %d in %q", p.Memory.Size, p.Memory.Path, now.Memory.Size, now.Memory.Path)
	case !sameUser:
		return fault.New(shim.CodeInvalid, "user", "the VMM is to run as another user")
	case p.Restore != nil || len(p.Companions) > 0 || p.Terminal:
		return fault.New(shim.CodeInvalid, "plan", "it restores an image, has companions, or a terminal")
	}
	return nil
}

func (s *renewals) renew(r *renewal, args *shim.Renew) (any, error) {
	start := time.Now()
	ctx, cancel := context.WithTimeoutCause(r.op.ctx, renewTime, fmt.Errorf("the renewal took more than %v", renewTime))
	defer cancel()
	faultpoint.Reach("shim.renew.begun")
	err := r.start(ctx)
	var warning error
	var stood time.Duration
	if err == nil {
		stood, warning, err = r.move(ctx)
	}
	if err != nil {
		err = r.undo(err)
		r.log.Warn("the VMM was not renewed", "error", err, "took", time.Since(start))
		s.finish(r.op, func() { s.settled(r) })
		return nil, err
	}
	r.leave()
	renewed := shim.Renewed{VMMPID: r.vm.proc().pid, Stopped: stood}
	if warning != nil {
		renewed.Warning = warning.Error()
	}
	s.finish(r.op, func() {
		s.settled(r)
		if args.Keep != nil {
			r.vm.keep = args.Keep
		}
		s.tell(shim.Event{Renewed: &renewed}, r.op.owner)
	})
	r.log.Info("VMM renewed", "pid", renewed.VMMPID, "before", r.old.proc.pid, "stopped", stood, "took", time.Since(start), "warning", renewed.Warning)
	go trimMemory(r.log)
	return renewed, nil
}

// settled is the end of a renewal; s.mu is held. Who was to kill the VM meanwhile may have killed the other VMM.
func (s *renewals) settled(r *renewal) {
	r.vm.handing = nil
	if r.vm.killed {
		if err := r.vm.proc().kill(); err != nil {
			r.log.Error("failed to kill the VMM", "error", err)
		}
	}
}

// start starts the new VMM beside the one that runs, and has it wait.
func (r *renewal) start(ctx context.Context) error {
	l, v := r.next, r.vm
	s := r.s
	s.mu.Lock()
	h := &inherited{kept: v.kept, used: make([]bool, len(v.kept))}
	s.mu.Unlock()
	var err error
	if r.console, err = v.console.Replace(); err != nil {
		return err
	}
	l.vm.undo.Push(r.console.Drop)
	o := &opener{
		plan: l.vm.plan, run: s.run, stateDir: s.o.StateDir, lock: s.o.listLock(), sockets: s.o.sockets(), volumes: s.o.volumes(),
		received: l.received, pairs: new(pairs), ram: v.ram, console: r.console.VMM, renewal: h, undo: &l.vm.undo, own: []*os.File{r.console.VMM},
	}
	l.opener = o
	defer o.release()
	if needsTapGuard(l.vm.plan) {
		r.taps = &tapGuard{log: r.log}
		l.onThread = r.taps.install
	}
	if err := o.all(ctx); err != nil {
		return err
	}
	faultpoint.Reach("shim.renew.opened")
	l.progress(shim.Progress{Step: "starting the new " + v.proc().name})
	if err := l.start(o); err != nil {
		return err
	}
	p := l.vm.proc()
	r.score(p, firstToDie)
	faultpoint.Reach("shim.renew.started")
	ctx, cancel := r.while(ctx)
	defer cancel()
	machine, err := l.driver.Connect(ctx, r.link())
	if err != nil {
		return explained(l.driver, l.vm.plan, p.explain(ctx, err))
	}
	l.vm.engine.Store(&engine{p, machine})
	l.vm.undo.Push(machine.Close)
	if err := l.dedicate(ctx); err != nil {
		return err
	}
	faultpoint.Reach("shim.renew.connected")
	return nil
}

// while is ctx for as long as the new VMM runs.
func (r *renewal) while(ctx context.Context) (context.Context, func()) {
	p := r.next.vm.proc()
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.done:
			cancel(fmt.Errorf("the new VMM: %w", p.failure()))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// link is the new VMM's: its sockets have other names at first, and what it says of the guest is of the VM's.
func (r *renewal) link() control.Link {
	link := r.next.link()
	link.Reset = func() { r.s.guests.thawed(r.vm) }
	link.Dial = func(ctx context.Context, name string) (net.Conn, error) {
		if !r.named.Load() {
			name = renewedPrefix + name
		}
		return r.s.run.Dial(ctx, name)
	}
	return link
}

// score tells the kernel which of its processes to kill first when memory runs out. In a container it may be refused.
func (r *renewal) score(p *process, score string) {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.pid), []byte(score), 0); err != nil {
		r.log.Debug("the kernel may kill either VMM first", "error", err)
	}
}

// move has the guest go on in the new VMM. After an error the first VMM has it. The warning is of a guest that has begun to
// run in the new one, as far as is known.
func (r *renewal) move(ctx context.Context) (stood time.Duration, warning, err error) {
	if err := r.record(r.next.vm.proc()); err != nil {
		return 0, nil, err
	}
	faultpoint.Reach("shim.renew.recorded")
	ctx, cancel := r.while(ctx)
	defer cancel()
	if err := r.send(ctx); err != nil {
		return 0, nil, err
	}
	faultpoint.Reach("shim.renew.sent")
	if err := r.op.seal(); err != nil {
		return 0, nil, errors.Join(err, r.goBack(false))
	}
	if err := r.fence(); err != nil {
		return 0, nil, errors.Join(err, r.goBack(false))
	}
	faultpoint.Reach("shim.renew.fenced")
	begin, done := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer done()
	err = r.next.vm.machine().(control.Receiver).Begin(begin)
	stood = time.Since(r.stopped)
	if r.taps != nil {
		r.taps.open.Store(true)
	}
	if errors.Is(err, control.ErrNotBegun) {
		return 0, nil, errors.Join(err, r.goBack(true))
	}
	r.console.Use()
	return stood, err, nil
}

// send hands the guest's state over. It is the guest's alone: RAM is in the file that both have.
func (r *renewal) send(ctx context.Context) error {
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	defer ours.Close()
	defer theirs.Close()
	receiver, can := r.next.vm.machine().(control.Receiver)
	if !can {
		return fault.Precondition("a %s can't receive a guest", r.vm.plan.VMM)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	received := make(chan error, 1)
	go func() {
		err := receiver.Receive(ctx, control.Handover{Stream: theirs, SharedRAM: true})
		if err != nil {
			cancel(fmt.Errorf("the new VMM has not taken the guest: %w", err))
		}
		received <- err
	}()
	var late *time.Timer
	defer func() {
		if late != nil {
			late.Stop()
		}
	}()
	err = r.old.machine.(control.Sender).Send(ctx, control.Handover{Stream: ours, SharedRAM: true}, func() error {
		late = time.AfterFunc(standTime, func() { cancel(fmt.Errorf("the guest was stopped for more than %v", standTime)) })
		return r.stand()
	})
	ours.Close() // else the receiver would wait for a sender that has ended
	ended := err != nil && r.endsAlone(err)
	if err != nil && !ended {
		cancel(err)
	}
	if errReceived := <-received; errReceived != nil && err == nil { // it has said that it has all
		return errors.Join(fmt.Errorf("the new VMM: %w", errReceived), r.goBack(false))
	} else if err != nil && (!ended || errReceived != nil) {
		return r.old.proc.explain(ctx, r.next.vm.proc().explain(ctx, err))
	}
	return nil
}

// endsAlone says whether the first VMM has ended with the guest stopped: the VMM that has all of it may go on then.
func (r *renewal) endsAlone(err error) bool {
	return !r.stopped.IsZero() && errors.Is(err, control.ErrMonitorClosed) && r.old.proc.endsSoon()
}

// stand notes that the guest is stopped: from here on the renewal says which VMM has it.
func (r *renewal) stand() error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.vm.ended || r.vm.killed {
		return fault.ErrKilled
	}
	r.vm.handing = r.op
	r.stopped = time.Now()
	return nil
}

// fence makes sure that the first VMM does nothing any more by itself, and makes the new one the VM's.
func (r *renewal) fence() error {
	if p := r.next.vm.proc(); p.ended() {
		return fmt.Errorf("the new VMM: %w", p.failure())
	}
	if !r.old.proc.ended() {
		if err := r.old.proc.pidfd.Signal(unix.SIGSTOP); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop process %d: %w", r.old.proc.pid, err)
		}
		if err := awaitThreads(r.old.proc.pid, threadStopped); err != nil {
			return err
		}
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.vm.killed {
		return fault.ErrKilled
	}
	r.vm.engine.Store(r.next.vm.engine.Load())
	return nil
}

// goBack has the guest go on in the first VMM. The new one has it, and has not begun: it never will. fenced: it was the VM's.
func (r *renewal) goBack(fenced bool) error {
	p := r.next.vm.proc()
	if err := p.kill(); err != nil {
		return fmt.Errorf("the guest is paused, as it might run in the new VMM: %w", err)
	}
	if err := awaitThreads(p.pid, threadEnding); err != nil && !p.endsSoon() {
		return fmt.Errorf("the guest is paused, as it might run in the new VMM: %w", err)
	}
	if fenced {
		r.vm.engine.Store(r.old)
	}
	if err := r.old.proc.pidfd.Signal(unix.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	if err := r.old.machine.Continue(ctx); err != nil && !r.old.proc.ended() {
		return fmt.Errorf("the guest is paused: continuing it failed: %w", err)
	}
	return nil
}

// undo takes back the new VMM, and all that was made for it.
func (r *renewal) undo(cause error) error {
	err := r.next.vm.undo.Run()
	faultpoint.Reach("shim.renew.undone")
	if r.next.vm.proc() != nil {
		err = errors.Join(err, r.record(nil))
	}
	if err != nil {
		r.log.Error("failed to clean up after a renewal", "error", err)
	}
	return cause
}

// leave ends the first VMM. Nothing that goes wrong here matters to the guest.
func (r *renewal) leave() {
	if err := r.next.opener.nameSockets(); err != nil {
		r.log.Error("failed to name the new VMM's sockets: agents don't find them", "error", err)
	}
	r.named.Store(true)
	faultpoint.Reach("shim.renew.named")
	if err := r.old.proc.kill(); err != nil {
		r.log.Error("failed to kill the VMM that the guest has left", "error", err)
	}
	_ = r.old.machine.Close() // it was killed
	faultpoint.Reach("shim.renew.left")
	r.score(r.vm.proc(), "0")
	r.vm.undo.Push(r.next.vm.undo.Run)
	r.vm.renewals++
	if err := r.record(nil); err != nil {
		r.log.Error("failed to record which process has the guest", "error", err)
	}
	select {
	case <-r.old.proc.done:
	case <-time.After(leaveTime):
		r.log.Warn("the VMM that the guest has left takes its time to end", "pid", r.old.proc.pid)
	}
	faultpoint.Reach("shim.renew.over")
}

// record writes down which process has the guest, and which is about to.
func (r *renewal) record(next *process) error {
	identify := func(pid int) (shim.ShimProcess, error) {
		p, err := shim.IdentifyRun(pid, r.s.o.RunID)
		return p, err
	}
	now, err := identify(r.vm.proc().pid)
	if err != nil {
		if r.vm.proc().ended() {
			return nil // exit.json is about to say so
		}
		return err
	}
	record := shim.VMMRecord{VMM: now, Renewals: r.vm.renewals}
	if next != nil {
		to, err := identify(next.pid)
		if err != nil {
			return err
		}
		record.Next = &to
	}
	return writeJSON(r.s.run, shim.VMMRecordName, &record)
}

func socketPair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "handover"), os.NewFile(uintptr(fds[1]), "handover"), nil
}
