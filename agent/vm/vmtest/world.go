// Package vmtest has a machine for tests: hosts, shims, VMMs and pods that are made up, and
// outlive the agents on it. It knows places, but not the VMs' manager, so that the
// manager's own tests can use it.
package vmtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/capabilities"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/emulation"
	"github.com/vmlet/vmlet/internal/unixsocket"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
)

// World is a machine: what outlives an agent.
type World struct {
	Hypervisor string // that is configured
	T          *testing.T
	StateDir   string
	RunDir     string
	BootID     string

	Mu      sync.Mutex
	NextPID int
	Procs   map[string]*Proc  // by run folder
	fail    map[string]error  // by step
	Held    map[string]bool   // of the host
	Hooks   map[string]func() // by step, called once
	steps   []string
	// Searched are the cgroups in which processes were to be ended, as their paths.
	Searched []string
	VMM      *VMM
	Others   []vmm.Program // after VMM, in the node's order
	OwnShims place.Shims   // nil: fakes
	OwnHost  place.Host    // nil: a fake
}

// New makes a machine on which nothing runs, in a directory of the test.
func New(t *testing.T) *World {
	dir := t.TempDir()
	w := &World{
		T: t, StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), BootID: "boot-1",
		NextPID: 100, Procs: make(map[string]*Proc), fail: make(map[string]error), Held: make(map[string]bool),
		Hooks: make(map[string]func()),
	}
	w.VMM = &VMM{W: w}
	return w
}

// step notes that something is done, or fails as the test wants.
func (w *World) step(name string) error {
	w.Mu.Lock()
	hook := w.Hooks[name]
	delete(w.Hooks, name)
	w.Mu.Unlock()
	if hook != nil {
		hook()
	}
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.steps = append(w.steps, name)
	return w.fail[name]
}

// Taken lists the steps so far.
func (w *World) Taken() []string {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return slices.Clone(w.steps)
}

// Hold takes something of the host; what is taken already is an error.
func (w *World) Hold(what string) error {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if w.Held[what] {
		return fmt.Errorf("%s is held already", what)
	}
	w.Held[what] = true
	return nil
}

// Has reports whether something of the host is taken.
func (w *World) Has(what string) bool {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return w.Held[what]
}

// Drop gives something back to the host.
func (w *World) Drop(what string) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	delete(w.Held, what)
}

// Holding lists what is taken of the host, processes included.
func (w *World) Holding() (list []string) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	for what := range w.Held {
		list = append(list, what)
	}
	for dir, p := range w.Procs {
		if p.Alive() {
			list = append(list, "process of "+filepath.Base(dir))
		}
	}
	return list
}

// Proc returns the latest shim of a VM of the node itself; nil: there was none.
func (w *World) Proc(vm string) *Proc {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return w.Procs[filepath.Join(w.RunDir, "vms", vm)]
}

// FailStep has each later step of that name fail; nil: succeed.
func (w *World) FailStep(name string, err error) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.fail[name] = err
}

// WantNothingHeld fails the test if anything is taken of the host, or a run directory is left.
func (w *World) WantNothingHeld(t *testing.T) {
	t.Helper()
	if held := w.Holding(); len(held) > 0 {
		t.Errorf("still held: %q", held)
	}
	left, err := os.ReadDir(filepath.Join(w.RunDir, "vms"))
	if err != nil || len(left) > 0 {
		t.Errorf("run folders are left: %v %v", left, err)
	}
}

// Connections returns how many connections a shim has.
func (w *World) Connections(p *Proc) int {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return len(p.Conns)
}

// Node is a machine that nobody reads, and whose VMM isn't asked beforehand.
func (w *World) Node(log *slog.Logger) *node.Node {
	w.T.Helper()
	known, err := hypervisor.NewLocal(KVM{}, emulation.Emulation{})
	if err != nil {
		w.T.Fatal(err)
	}
	none := filepath.Join(w.StateDir, "none")
	n, err := node.New(capabilities.Sources{Roots: sysfs.Roots{Sys: none, Proc: none, Dev: none}, ThisMachine: true, Hypervisors: known, VMMs: append([]vmm.Program{w.VMM}, w.Others...), Log: log}, w.StateDir)
	if err != nil {
		w.T.Fatal(err)
	}
	return n
}

// Shims are the processes of this machine.
func (w *World) Shims() place.Shims {
	if w.OwnShims != nil {
		return w.OwnShims
	}
	return Shims{w}
}

// Host is the rest of it.
func (w *World) Host() place.Host {
	if w.OwnHost != nil {
		return w.OwnHost
	}
	return &Host{w: w}
}

// Proc is a shim and its VMM.
type Proc struct {
	W        *World
	PID      int
	Options  shim.StartOptions
	Mu       sync.Mutex
	Launched *plan.Plan
	Paused   bool
	Stopped  *vmm.Status   // what its VMM says, if that stopped the guest by itself
	Guest    *vmm.Guest    // what its agent says; nil: it has none
	Frozen   time.Duration // as the shim was asked; 0: it is not
	Button   bool          // a reboot may press the power button
	Saving   *shim.Save
	SavingTo string // a path
	Deaf     bool   // answers no connection
	Pod      *Pod
	Conns    []*Shim
	Monitors []*Monitor
	Dead     chan struct{}

	Attached []string
	Taps     int
	Notes    []json.RawMessage
	VCPUs    int
	Balloon  uint64
	// Renewals of the VMM, and what was kept of the last.
	Renewals int
	Keep     json.RawMessage
}

// Alive reports whether the shim runs.
func (p *Proc) Alive() bool {
	select {
	case <-p.Dead:
		return false
	default:
		return true
	}
}

func (p *Proc) newMonitor() (vmm.Monitor, error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	m := &Monitor{Proc: p, Sends: make(chan vmm.Event, 16)}
	p.Monitors = append(p.Monitors, m)
	return m, nil
}

// End ends shim and VMM, with a word (exit.json) or without.
func (p *Proc) End(e *shim.Exit) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if !p.Alive() {
		return
	}
	if e != nil {
		e.RunID, e.Time = p.Options.RunID, time.Now()
		b, err := json.Marshal(e)
		if err == nil {
			err = os.WriteFile(filepath.Join(p.Options.StateDir, shim.ExitName), b, 0o600)
		}
		if err != nil {
			p.W.T.Error(err)
		}
	}
	for _, m := range p.Monitors {
		m.Close()
	}
	if p.Launched != nil {
		p.W.Drop("memory " + p.Launched.Memory.Path)
		for _, what := range granting(p.Launched) {
			if e != nil { // else it was killed, and takes back nothing
				p.W.Drop(what)
			}
		}
	}
	close(p.Dead)
	for _, c := range p.Conns {
		if e != nil {
			c.Sends <- shim.Event{Exit: e}
		}
		c.HangUp()
	}
	p.Conns = nil
}

// Shims are the processes of a world.
type Shims struct{ w *World }

func (s Shims) Start(_ context.Context, o shim.StartOptions) (place.Shim, int, error) {
	if err := s.w.step("shim"); err != nil {
		return nil, 0, err
	}
	for _, dir := range []string{o.RunDir, o.StateDir} {
		if _, err := os.Stat(dir); err != nil {
			s.w.T.Errorf("the shim's folder: %v", err)
		}
	}
	p := s.newProc(o)
	if err := o.Within(func(*syscall.SysProcAttr) (int, error) { return p.PID, nil }); err != nil {
		close(p.Dead)
		return nil, 0, err
	}
	return p.Connect(), p.PID, nil
}

func (s Shims) newProc(o shim.StartOptions) *Proc {
	s.w.Mu.Lock()
	defer s.w.Mu.Unlock()
	if p := s.w.Procs[o.RunDir]; p != nil && p.Alive() {
		s.w.T.Errorf("a second shim in %s", o.RunDir)
	}
	s.w.NextPID++
	p := &Proc{W: s.w, PID: s.w.NextPID, Options: o, Dead: make(chan struct{})}
	s.w.Procs[o.RunDir] = p
	return p
}

// Connect makes a connection to the shim.
func (p *Proc) Connect() *Shim {
	c := &Shim{proc: p, Sends: make(chan shim.Event, 8)}
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.Conns = append(p.Conns, c)
	return c
}

func (s Shims) find(runDir string) (*Proc, error) {
	s.w.Mu.Lock()
	defer s.w.Mu.Unlock()
	p := s.w.Procs[runDir]
	switch {
	case p == nil:
		return nil, fs.ErrNotExist
	case !p.Alive():
		return nil, os.ErrProcessDone
	}
	return p, nil
}

func (s Shims) Dial(_ context.Context, runDir string) (place.Shim, error) {
	p, err := s.find(runDir)
	if err != nil {
		return nil, err
	}
	if p.Deaf {
		_ = s.w.step("dial")
		return nil, errors.New("no answer")
	}
	return p.Connect(), nil
}

// Conn only says which process it leads to.
type Conn struct {
	net.Conn
	proc *Proc
}

// driverSocket is where a VM's driver listens (vmm/remote/wire).
const driverSocket = "driver.sock"

func (s Shims) DialSocket(_ context.Context, runDir, name string) (net.Conn, error) {
	p, err := s.find(runDir)
	if err == nil && name == driverSocket && p.Pod != nil && p.Pod.Driver != nil {
		near, end, err := unixsocket.Pair(name)
		if err != nil {
			return nil, err
		}
		defer end.Close()
		far, err := net.FileConn(end)
		if err != nil {
			return nil, err
		}
		return near, p.Pod.Driver("", far)
	}
	return &Conn{proc: p}, err
}

func (s Shims) Process(runDir string) (place.ShimProcess, error) {
	if err := s.w.step("process"); err != nil {
		return nil, err
	}
	p, err := s.find(runDir)
	if err != nil {
		return nil, err
	}
	return Process{p}, nil
}

// Process is a Proc as the manager sees it.
type Process struct{ p *Proc }

func (f Process) PID() int     { return f.p.PID }
func (f Process) Alive() bool  { return f.p.Alive() }
func (f Process) Close() error { return nil }
func (f Process) Kill() error  { f.p.End(nil); return nil }
func (f Process) Wait(ctx context.Context) error {
	select {
	case <-f.p.Dead:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
