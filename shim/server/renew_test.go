package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
)

// hook is a function that stands for what can go wrong: a test sets it while the shim runs.
func hook[F any](m *fakeMachine, f *F) F {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *f
}

func (m *fakeMachine) onSend(f func(context.Context, func() error) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.send = f
}

func (m *fakeMachine) onReceive(f func(context.Context) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.receive = f
}

func (m *fakeMachine) onBegin(f func() error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begin = f
}

// Send implements control.Sender as a VMM does to which nothing happens.
func (m *fakeMachine) Send(ctx context.Context, _ control.Handover, stopped func() error) error {
	if send := hook(m, &m.send); send != nil {
		return send(ctx, stopped)
	}
	if err := stopped(); err != nil {
		return err
	}
	m.set(false)
	return nil
}

// Receive implements control.Receiver.
func (m *fakeMachine) Receive(ctx context.Context, _ control.Handover) error {
	if receive := hook(m, &m.receive); receive != nil {
		return receive(ctx)
	}
	return nil
}

// Begin implements control.Receiver.
func (m *fakeMachine) Begin(context.Context) error {
	if begin := hook(m, &m.begin); begin != nil {
		if err := begin(); err != nil {
			return err
		}
	}
	m.set(true)
	return nil
}

// renewing is a VM that runs, and the VMM that is to take its VMM's place.
type renewing struct {
	*scene
	next *fakeMachine
	pid  int // of the first VMM
}

func newRenewing(t *testing.T) *renewing {
	t.Helper()
	s := newScene(t, nil)
	r := &renewing{scene: s, next: &fakeMachine{displays: make(chan net.Conn, 8)}}
	s.driver.next = r.next
	r.pid = s.launch()
	return r
}

func (r *renewing) renew(how string) (*shim.Renewed, error) {
	return r.client.Renew(r.ctx, shim.Renew{Plan: r.plan(how)}, nil, nil)
}

// current is the pid of the VM's VMM, as a new agent hears it.
func (r *renewing) current() int {
	r.t.Helper()
	client, err := shim.Dial(r.ctx, r.options.RunDir)
	r.check(err)
	defer client.Close()
	return client.Welcome().VMMPID
}

func alive(pid int) bool { return unix.Kill(pid, 0) == nil }

func (r *renewing) wantRecord(pid, renewals int) {
	r.t.Helper()
	record, err := shim.ReadVMMRecord(r.options.RunDir)
	switch {
	case err != nil:
		r.t.Errorf("the record: %v", err)
	case record.VMM.PID != pid || record.Next != nil || record.Renewals != renewals:
		r.t.Errorf("the record has %+v, want process %d after %d renewals", record, pid, renewals)
	}
}

// TestRenew: another VMM has the guest and its console, and the first one is gone; so it is again.
func TestRenew(t *testing.T) {
	r := newRenewing(t)
	seen, err := r.client.Console(r.ctx, 0)
	r.check(err)
	defer seen.Close()
	renewed, err := r.renew("well")
	r.check(err)
	if renewed.VMMPID == r.pid || r.current() != renewed.VMMPID {
		t.Errorf("the VMM is process %d as a new agent hears it, %d as the reply says, and was %d", r.current(), renewed.VMMPID, r.pid)
	}
	if alive(r.pid) || !alive(renewed.VMMPID) {
		t.Errorf("the first VMM lives: %t; the second: %t", alive(r.pid), alive(renewed.VMMPID))
	}
	if r.machine.isRunning() || !r.next.isRunning() {
		t.Errorf("the guest runs in the first VMM: %t; in the second: %t", r.machine.isRunning(), r.next.isRunning())
	}
	r.wantRecord(renewed.VMMPID, 1)
	for _, name := range []string{monitorSocket} {
		r.noFile(r.options.RunDir + "/" + renewedPrefix + name)
		if _, err := os.Lstat(r.options.RunDir + "/" + name); err != nil {
			t.Errorf("the new VMM's socket: %v", err)
		}
	}
	third := &fakeMachine{displays: make(chan net.Conn, 8)}
	r.driver.mu.Lock()
	r.driver.next = third
	r.driver.mu.Unlock()
	again, err := r.renew("talks")
	r.check(err)
	r.wantRecord(again.VMMPID, 2)
	r.check(third.exit('0'))
	if said, err := io.ReadAll(seen); err != nil || !strings.HasSuffix(string(said), lastSaid()[1<<10:]) {
		t.Errorf("the console has %d bytes of what the last VMM said, %v", len(said), err)
	}
	if exit := r.exit(); exit.Code != 0 || !strings.Contains(exit.LastWords, "talks") {
		t.Errorf("it ended with %+v", exit)
	}
}

// TestRenewFails: whatever goes wrong before the new VMM has begun, the guest goes on in the first one, and can be renewed.
func TestRenewFails(t *testing.T) {
	told := errors.New("told to")
	for name, c := range map[string]struct {
		how    string
		change func(r *renewing, cancel func())
		want   string // in the error
	}{
		"the new VMM does not come up": {how: "dead", change: func(r *renewing, _ func()) {
			r.driver.onConnect(func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}, want: "exit status 3"},
		"it does not answer": {change: func(r *renewing, _ func()) { r.driver.onConnect(func(context.Context) error { return told }) }, want: "told to"},
		"the guest is not sent": {change: func(r *renewing, _ func()) {
			r.machine.onSend(func(context.Context, func() error) error { return told })
		}, want: "told to"},
		"it is not received": {change: func(r *renewing, _ func()) {
			r.next.onReceive(func(context.Context) error { return told })
			r.machine.onSend(func(ctx context.Context, _ func() error) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}, want: "told to"},
		"it is sent, and not received": {change: func(r *renewing, _ func()) { r.next.onReceive(func(context.Context) error { return told }) }, want: "told to"},
		"the new VMM dies when the guest is stopped": {change: func(r *renewing, _ func()) {
			r.machine.onSend(func(ctx context.Context, stopped func() error) error {
				if err := stopped(); err != nil {
					return err
				}
				r.check(r.next.exit('7'))
				<-ctx.Done()
				return context.Cause(ctx)
			})
			r.next.onReceive(func(ctx context.Context) error {
				<-ctx.Done()
				return control.ErrMonitorClosed
			})
		}, want: "exit status 7"},
		"the new VMM refuses to begin": {change: func(r *renewing, _ func()) {
			r.next.onBegin(func() error { return fmt.Errorf("%w: a disk is locked", control.ErrNotBegun) })
		}, want: "a disk is locked"},
		"who asked has gone": {change: func(r *renewing, cancel func()) {
			r.machine.onSend(func(ctx context.Context, stopped func() error) error {
				cancel()
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}, want: "aborted"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRenewing(t)
			ctx, cancel := context.WithCancel(r.ctx)
			defer cancel()
			if c.change != nil {
				c.change(r, cancel)
			}
			how := c.how
			if how == "" {
				how = "well"
			}
			_, err := r.client.Renew(ctx, shim.Renew{Plan: r.plan(how)}, nil, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
			if r.current() != r.pid || !alive(r.pid) {
				t.Errorf("the VMM is process %d, and was %d, which lives: %t", r.current(), r.pid, alive(r.pid))
			}
			if !r.machine.isRunning() || r.next.isRunning() {
				t.Errorf("the guest runs in the first VMM: %t; in the second: %t", r.machine.isRunning(), r.next.isRunning())
			}
			r.wantRecord(r.pid, 0)
			r.noFile(r.options.RunDir + "/" + renewedPrefix + monitorSocket)

			r.driver.onConnect(nil)
			r.driver.mu.Lock()
			r.driver.next = &fakeMachine{displays: make(chan net.Conn, 8)}
			r.driver.mu.Unlock()
			r.machine.onSend(nil)
			r.next = r.driver.next
			renewed, err := r.renew("well")
			r.check(err)
			r.wantRecord(renewed.VMMPID, 1)
		})
	}
}

// TestRenewEnds: who dies when. One VMM at most has the guest, and one does if it can.
func TestRenewEnds(t *testing.T) {
	die := func(m *fakeMachine, p func() *process) error {
		if err := m.exit('7'); err != nil {
			return err
		}
		<-p().done
		return nil
	}
	for name, c := range map[string]struct {
		change func(r *renewing)
		// lives: the guest goes on in the second VMM. Else the VM has ended, for this reason.
		lives bool
		ended shim.Reason
	}{
		"the first dies before the guest is stopped": {change: func(r *renewing) {
			r.machine.onSend(func(context.Context, func() error) error {
				r.check(die(r.machine, r.server.vm.proc))
				return control.ErrMonitorClosed
			})
		}, ended: shim.ReasonCrashed},
		"the first dies with a part of the guest sent": {change: func(r *renewing) {
			r.machine.onSend(func(_ context.Context, stopped func() error) error {
				r.check(stopped())
				r.check(die(r.machine, r.server.vm.proc))
				return control.ErrMonitorClosed
			})
			r.next.onReceive(func(ctx context.Context) error { return errors.New("the stream has ended") })
		}, ended: shim.ReasonCrashed},
		"the first dies when the other has all of the guest": {change: func(r *renewing) {
			r.machine.onSend(func(_ context.Context, stopped func() error) error {
				r.check(stopped())
				r.machine.set(false)
				r.check(die(r.machine, r.server.vm.proc))
				return control.ErrMonitorClosed
			})
		}, lives: true},
		"the first dies when it has sent the guest": {change: func(r *renewing) {
			r.machine.onSend(func(_ context.Context, stopped func() error) error {
				r.check(stopped())
				r.machine.set(false)
				return die(r.machine, r.server.vm.proc)
			})
		}, lives: true},
		"it is unknown whether the second has begun": {change: func(r *renewing) {
			r.next.onBegin(func() error {
				r.next.set(true)
				return errors.New("no answer")
			})
		}, lives: true},
		"the second dies as it begins": {change: func(r *renewing) {
			r.next.onBegin(func() error {
				r.check(die(r.next, r.server.vm.proc))
				return control.ErrMonitorClosed
			})
		}, ended: shim.ReasonCrashed},
		"the VM is killed while the guest is sent": {change: func(r *renewing) {
			r.machine.onSend(func(ctx context.Context, stopped func() error) error {
				r.check(stopped())
				go func() { _, _ = r.dial().Kill(r.ctx) }()
				<-ctx.Done()
				return context.Cause(ctx)
			})
			r.next.onReceive(func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}, ended: shim.ReasonKilled},
		"the VM is killed as the second begins": {change: func(r *renewing) {
			r.next.onBegin(func() error {
				killing := make(chan struct{})
				go func() {
					client := r.dial()
					close(killing)
					_, _ = client.Kill(r.ctx)
				}()
				<-killing
				time.Sleep(50 * time.Millisecond)
				return nil
			})
		}, ended: shim.ReasonKilled},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRenewing(t)
			c.change(r)
			renewed, err := r.renew("well")
			if c.lives {
				r.check(err)
				if r.current() != renewed.VMMPID || alive(r.pid) || !alive(renewed.VMMPID) {
					t.Errorf("the first VMM lives: %t; the second: %t", alive(r.pid), alive(renewed.VMMPID))
				}
				if r.machine.isRunning() || !r.next.isRunning() {
					t.Errorf("the guest runs in the first VMM: %t; in the second: %t", r.machine.isRunning(), r.next.isRunning())
				}
				r.wantRecord(renewed.VMMPID, 1)
				return
			}
			if exit := r.exit(); exit.Reason != c.ended {
				t.Errorf("it ended with %+v, want %s; the renewal: %v", exit, c.ended, err)
			}
			if alive(r.pid) || renewed != nil && alive(renewed.VMMPID) {
				t.Error("a VMM lives")
			}
		})
	}
}

// TestRenewRefused: what can't be handed over is said before anything is done.
func TestRenewRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *renewing, p *plan.Plan)
		want   string
	}{
		"another VM":     {func(_ *renewing, p *plan.Plan) { p.ID = "other" }, "id"},
		"other memory":   {func(_ *renewing, p *plan.Plan) { p.Memory.Size *= 2 }, "memory"},
		"another user":   {func(_ *renewing, p *plan.Plan) { p.User = &plan.User{UID: 7} }, "user"},
		"an image":       {func(_ *renewing, p *plan.Plan) { p.Restore = &plan.Restore{Directory: "/images/one"} }, "restores"},
		"private memory": {func(r *renewing, _ *plan.Plan) { r.server.vm.ram = nil }, "eagerly"},
		"a companion": {func(r *renewing, _ *plan.Plan) {
			r.server.vm.companions = []*companion{{what: &plan.Companion{Name: "swtpm"}}}
		}, "swtpm"},
		"frozen":          {func(r *renewing, _ *plan.Plan) { r.server.vm.freeze.thaw = time.NewTimer(time.Hour) }, "frozen"},
		"a leaving disk":  {func(r *renewing, _ *plan.Plan) { r.server.vm.plugs.leaving["disk1"] = func() {} }, "detached"},
		"another request": {func(r *renewing, _ *plan.Plan) { _, _ = r.server.begin(opAttach, nil) }, opAttach},
		"a lost tap": {func(_ *renewing, p *plan.Plan) {
			p.Files = append(p.Files, plan.File{Kind: plan.FileReceived, Field: "networks[0].tap", Keep: "net0-device/tap0"})
		}, "net0-device/tap0"},
		"an emulator": {func(_ *renewing, p *plan.Plan) {
			p.Files = append(p.Files, plan.File{Kind: plan.FileConnect, Field: "devices.tpm.socket", Path: "/run/tpm"})
		}, "can't hand its guest over"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRenewing(t)
			p := r.plan("well")
			r.server.mu.Lock()
			ram := r.server.vm.ram
			c.change(r, p)
			r.server.mu.Unlock()
			_, err := r.client.Renew(r.ctx, shim.Renew{Plan: p}, nil, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if !r.machine.isRunning() || r.current() != r.pid {
				t.Error("the guest does not run as before")
			}
			r.server.mu.Lock()
			defer r.server.mu.Unlock()
			r.server.vm.ram, r.server.vm.companions = ram, nil
			if r.server.op != nil {
				r.server.over(r.server.op)
			}
		})
	}
}

// TestRenewKeepsFiles: the new VMM gets the very files that the first one had, also where their paths lead elsewhere by now.
func TestRenewKeepsFiles(t *testing.T) {
	dir := t.TempDir()
	disk := dir + "/disk"
	if err := os.WriteFile(disk, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	opened, err := os.OpenFile(disk, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	tap := memfd(t)
	files := []plan.File{
		{Kind: plan.FilePath, Path: disk, Write: true, DiskName: "root"},
		{Kind: plan.FileReceived, Keep: "net0-device/tap0"},
		{Kind: plan.FileReceived}, // of vhost: another one is received
	}
	kept, err := keep(files, []*os.File{opened, tap, tap}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer closeKept(kept)
	if err := os.Rename(disk, disk+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(disk, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := &opener{renewal: &inherited{kept: kept, used: make([]bool, len(kept))}}
	defer o.release()
	for i, want := range []*os.File{opened, tap, nil} {
		got, err := o.inherit(&files[i])
		if err != nil {
			t.Fatal(err)
		}
		if (got == nil) != (want == nil) || got != nil && !sameFile(t, got, want) {
			t.Errorf("files[%d]: %v, want %v", i, got, want)
		}
	}
	var refused *shim.Error
	if _, err := o.inherit(&files[0]); !errors.As(err, &refused) || refused.Code != shim.CodePrecondition {
		t.Errorf("a disk that was handed over is opened again: %v", err)
	}
	v := &vm{kept: kept}
	v.dropKeptOf("net0-device", "")
	v.dropKeptOf("disk0-device", "root")
	if len(v.kept) != 0 {
		t.Errorf("of devices that are gone %d files are kept", len(v.kept))
	}
}

func memfd(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "test")
	t.Cleanup(func() { f.Close() })
	return f
}

func sameFile(t *testing.T, a, b *os.File) bool {
	t.Helper()
	one, errA := a.Stat()
	two, errB := b.Stat()
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	return os.SameFile(one, two)
}

// TestThreads: what a stat file says of a thread, whatever its name is.
func TestThreads(t *testing.T) {
	for stat, want := range map[string]struct{ stopped, ending bool }{
		"7 (qemu) S 1 7 7 0 -1 4194560 0":         {},
		"7 (a) T 4 b) T 1 7 7 0 -1 4194560 0":     {stopped: true},
		"7 (qemu) R 1 7 7 0 -1 4194564 0":         {stopped: true, ending: true},
		"7 (qemu) Z 1 7 7 0 -1 4194560 0":         {stopped: true, ending: true},
		"7 (vhost-1) S 1 7 7 0 -1 4210944 0":      {stopped: true},
		"7 (qemu) t 1 7 7 0 -1 4194560 0 0 0 0 0": {stopped: true},
	} {
		got, err := parseThread([]byte(stat))
		if err != nil {
			t.Errorf("%s: %v", stat, err)
			continue
		}
		if threadStopped(got) != want.stopped || threadEnding(got) != want.ending {
			t.Errorf("%s: stopped %t, ending %t, want %+v", stat, threadStopped(got), threadEnding(got), want)
		}
	}
	if _, err := parseThread([]byte("7 (qemu) S 1")); err == nil {
		t.Error("half a line is taken for a whole one")
	}
	if err := awaitThreads(os.Getpid(), func(thread) bool { return true }); err != nil {
		t.Errorf("awaiting nothing: %v", err)
	}
}
