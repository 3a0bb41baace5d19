package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vmlet/vmlet/internal/unixsocket"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/remote"
	"github.com/vmlet/vmlet/vmm/remote/driver"
	"github.com/vmlet/vmlet/vmm/remote/process"
	"github.com/vmlet/vmlet/vmm/remote/wire"
)

// runTime bounds each step with a VM.
const runTime = 2 * time.Minute

func (t *trial) open() (*net.UnixConn, func() error, error) {
	p, err := process.Start(t.options())
	if err != nil {
		return nil, nil, err
	}
	return p.Conn, p.Close, nil
}

// running is a VM without a shim: its VMM, the driver, and what the guest prints.
type running struct {
	folder  string
	cmd     *exec.Cmd
	machine control.Machine
	printed atomic.Int64
	undo    []func()
}

func (r *running) end() {
	for i := len(r.undo) - 1; i >= 0; i-- {
		r.undo[i]()
	}
}

// runs has a VM started, watched, stopped, saved and restored.
func (t *trial) runs(ctx context.Context) {
	first, err := t.start(ctx, t.planned)
	t.check("it connects to its VMM", err)
	if err != nil {
		return
	}
	defer first.end()
	t.check("its guest runs", first.goesOn(ctx))
	t.check("the agent watches it", t.watches(ctx, first))
	t.check("the guest stops", first.stops(ctx))
	saved, err := os.CreateTemp("", "vmlet-driver-state-")
	if err != nil {
		t.check("it saves the guest", err)
		return
	}
	defer os.Remove(saved.Name())
	defer saved.Close()
	err = first.machine.SaveState(ctx, saved, !t.planned.Memory.InVMM)
	t.check("it saves the guest", err)
	t.check("the guest goes on after a save", first.goesOn(ctx))
	if err == nil && t.planned.Memory.InVMM {
		t.check("another VMM goes on from the save", t.restores(ctx, saved))
	}
	t.check("the VMM ends on request", first.quits(ctx))
}

func (t *trial) restores(ctx context.Context, saved *os.File) error {
	m, err := t.vmm.Manifest(t.request(nil))
	if err != nil {
		return err
	}
	p, err := t.vmm.Plan(t.request(&vmm.Image{Directory: "/var/lib/vmlet/image", Manifest: &m}))
	if err != nil {
		return err
	}
	if m.Layout != memory.LayoutStream {
		return fmt.Errorf("RAM is the VMM's own, and the manifest says %q: want %q", m.Layout, memory.LayoutStream)
	}
	second, err := t.start(ctx, p)
	if err != nil {
		return err
	}
	defer second.end()
	if _, err := saved.Seek(0, 0); err != nil {
		return err
	}
	if err := second.machine.LoadState(ctx, saved, false); err != nil {
		return err
	}
	return second.goesOn(ctx)
}

// start does what a shim does for a plan that has sockets, files and a console.
func (t *trial) start(ctx context.Context, p *plan.Plan) (r *running, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	folder, err := os.MkdirTemp("", "vmlet-driver-")
	if err != nil {
		return nil, err
	}
	r = &running{folder: folder, undo: []func(){func() { os.RemoveAll(folder) }}}
	defer func() {
		if err != nil {
			r.end()
		}
	}()
	r.cmd = exec.Command(p.Program, p.Args...)
	said := new(strings.Builder)
	r.cmd.Stdout, r.cmd.Stderr, r.cmd.Env = said, said, append([]string{"PATH=/usr/bin:/bin"}, p.Env...)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	for _, f := range p.Files {
		opened, err := r.file(f)
		if err != nil {
			return nil, fmt.Errorf("file %s of the plan: %w", f, err)
		}
		defer opened.Close()
		r.cmd.ExtraFiles = append(r.cmd.ExtraFiles, opened)
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() { _ = r.cmd.Wait(); close(ended) }()
	r.undo = append(r.undo, func() { _ = r.cmd.Process.Kill(); <-ended })
	child, err := process.Start(t.options())
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, name string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(folder, name))
	}
	r.machine, err = driver.New(ctx, child.Conn, control.Link{Plan: p, PID: r.cmd.Process.Pid, Dial: dial, Listen: func(string) (*net.UnixListener, error) {
		return nil, errors.New("this program has no sockets for agents")
	}}, child.Close)
	if err != nil {
		err = errors.Join(child.Explain(err), child.Close())
		select {
		case <-ended:
			err = fmt.Errorf("the VMM ended: %s: %w", strings.TrimSpace(said.String()), err)
		case <-time.After(time.Second):
		}
		return nil, err
	}
	r.undo = append(r.undo, func() { r.machine.Close() })
	return r, nil
}

func (r *running) file(f plan.File) (*os.File, error) {
	switch f.Kind {
	case plan.FilePath:
		return os.Open(f.Path)
	case plan.FileListen:
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(r.folder, f.Path), Net: "unix"})
		if err != nil {
			return nil, err
		}
		l.SetUnlinkOnClose(false)
		defer l.Close()
		return l.File()
	case plan.FileConsole:
		own, other, err := unixsocket.Pair("console")
		if err != nil {
			return nil, err
		}
		r.undo = append(r.undo, func() { own.Close() })
		go func() {
			b := make([]byte, 4096)
			for {
				n, err := own.Read(b)
				if err != nil {
					return
				}
				r.printed.Add(int64(n))
			}
		}()
		return other, nil
	}
	return nil, fmt.Errorf("this program makes no files of kind %s: try such a driver with an agent", f.Kind)
}

func (r *running) goesOn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	before := r.printed.Load()
	if err := r.machine.Continue(ctx); err != nil {
		return err
	}
	for r.printed.Load() <= before {
		select {
		case <-ctx.Done():
			return errors.New("the guest prints nothing")
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (r *running) stops(ctx context.Context) error {
	ran, err := r.machine.Stop(ctx)
	if err != nil {
		return err
	}
	if !ran {
		return errors.New("it says that the guest did not run, and it did")
	}
	time.Sleep(200 * time.Millisecond) // what was printed before is on its way
	before := r.printed.Load()
	time.Sleep(500 * time.Millisecond)
	if r.printed.Load() != before {
		return errors.New("the guest prints on")
	}
	if ran, err := r.machine.Stop(ctx); err != nil || ran {
		return fmt.Errorf("stopped again it says that the guest ran: %v, %w", ran, orNone(err))
	}
	return nil
}

func (r *running) quits(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := r.machine.Quit(ctx); err != nil {
		return err
	}
	e := r.machine.Ending(ctx)
	if !e.Told || e.Panicked {
		return fmt.Errorf("its ending is %+v, want one on request", e)
	}
	return nil
}

// watches is what an agent does, on a connection of its own.
func (t *trial) watches(ctx context.Context, r *running) error {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	p, err := process.Start(t.options())
	if err != nil {
		return err
	}
	defer p.Close()
	m, err := remote.Watch(ctx, p.Conn, func(ctx context.Context, name string) (net.Conn, error) {
		if name == wire.SocketName {
			return nil, errors.New("the driver asks for its own socket")
		}
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(r.folder, name))
	})
	if err != nil {
		return p.Explain(err)
	}
	defer m.Close()
	for _, step := range []struct {
		do    func(context.Context) error
		wants bool
		event vmm.Change
	}{{m.Pause, false, vmm.ChangePaused}, {m.Resume, true, vmm.ChangeResumed}} {
		if err := step.do(ctx); err != nil {
			return err
		}
		s, err := m.Status(ctx)
		if err != nil {
			return err
		}
		if s.Running != step.wants {
			return fmt.Errorf("its status is %+v, want running %v", s, step.wants)
		}
		if err := awaitEvent(ctx, m, step.event); err != nil {
			return err
		}
	}
	return nil
}

func awaitEvent(ctx context.Context, m vmm.Monitor, want vmm.Change) error {
	for {
		select {
		case e, more := <-m.Events():
			if !more {
				return errors.New("its events end while the VM runs")
			}
			if e.Change == want {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("no event says that the guest is %s", wire.ChangeName(int(want)))
		}
	}
}
