package agent

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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/host"
	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/capabilities"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/emulation"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
)

// World is a machine: what outlives an agent.
type World struct {
	hypervisor string // that is configured
	t          *testing.T
	stateDir   string
	runDir     string
	bootID     string

	mu      sync.Mutex
	nextPID int
	procs   map[string]*fakeProc // by run folder
	fail    map[string]error     // by step
	held    map[string]bool      // of the host
	hooks   map[string]func()    // by step, called once
	steps   []string
	// searched are the cgroups in which processes were to be ended, as their paths.
	searched []string
	vmm      *fakeVMM
	others   []vmm.Program // after vmm, in the node's order
	shims    Shims         // nil: fakes
	host     Host          // nil: a fake
}

func NewWorld(t *testing.T) *World {
	dir := t.TempDir()
	w := &World{
		t: t, stateDir: filepath.Join(dir, "state"), runDir: filepath.Join(dir, "run"), bootID: "boot-1",
		nextPID: 100, procs: make(map[string]*fakeProc), fail: make(map[string]error), held: make(map[string]bool),
		hooks: make(map[string]func()),
	}
	w.vmm = &fakeVMM{w: w}
	return w
}

// step notes that something is done, or fails as the test wants.
func (w *World) step(name string) error {
	w.mu.Lock()
	hook := w.hooks[name]
	delete(w.hooks, name)
	w.mu.Unlock()
	if hook != nil {
		hook()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps = append(w.steps, name)
	return w.fail[name]
}

// taken lists the steps so far.
func (w *World) taken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.steps)
}

func (w *World) hold(what string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held[what] {
		return fmt.Errorf("%s is held already", what)
	}
	w.held[what] = true
	return nil
}

func (w *World) has(what string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held[what]
}

func (w *World) drop(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, what)
}

// holding lists what is taken of the host, processes included.
func (w *World) holding() (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for what := range w.held {
		list = append(list, what)
	}
	for dir, p := range w.procs {
		if p.alive() {
			list = append(list, "process of "+filepath.Base(dir))
		}
	}
	return list
}

func (w *World) proc(vm string) *fakeProc {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.procs[filepath.Join(w.runDir, "vms", vm)]
}

// failStep has each later step of that name fail; nil: succeed.
func (w *World) failStep(name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail[name] = err
}

func (w *World) wantNothingHeld(t *testing.T) {
	t.Helper()
	if held := w.holding(); len(held) > 0 {
		t.Errorf("still held: %q", held)
	}
	left, err := os.ReadDir(filepath.Join(w.runDir, "vms"))
	if err != nil || len(left) > 0 {
		t.Errorf("run folders are left: %v %v", left, err)
	}
}

func (w *World) connections(p *fakeProc) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// node is a machine of which nothing is read, and whose VMM isn't asked beforehand.
func (w *World) node(log *slog.Logger) *node.Node {
	w.t.Helper()
	known, err := hypervisor.New(fakeKVM{}, emulation.Emulation{})
	if err != nil {
		w.t.Fatal(err)
	}
	none := filepath.Join(w.stateDir, "none")
	n, err := node.New(capabilities.Sources{Roots: sysfs.Roots{Sys: none, Proc: none, Dev: none}, ThisMachine: true, Hypervisors: known, VMMs: append([]vmm.Program{w.vmm}, w.others...), Log: log}, w.stateDir)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// Shims are the processes of this machine.
func (w *World) Shims() Shims {
	if w.shims != nil {
		return w.shims
	}
	return fakeShims{w}
}

// Host is the rest of it.
func (w *World) Host() Host {
	if w.host != nil {
		return w.host
	}
	return &fakeHost{w: w}
}

// fakeKVM works.
type fakeKVM struct{}

func (fakeKVM) Name() string        { return "kvm" }
func (fakeKVM) Device() string      { return "/dev/fake-kvm" }
func (fakeKVM) Accelerator() string { return "kvm" }
func (fakeKVM) VirtType() string    { return "kvm" }
func (fakeKVM) Check(context.Context) hypervisor.Status {
	return hypervisor.Status{Level: hypervisor.Works, CPUQuirks: []string{"-quirk"}}
}

func (fakeKVM) DeviceRequests() []hypervisor.DeviceRequest {
	return []hypervisor.DeviceRequest{{Resource: "devices.kubevirt.io/kvm", Path: "/dev/kvm"}}
}

func (fakeKVM) AdjustResources(f hypervisor.ResourceFacts) hypervisor.Resources {
	return hypervisor.CommonResources(f)
}

// fakeHost keeps count of what is taken; taking twice is an error.
type fakeHost struct{ w *World }

func (h *fakeHost) TakeUser(vm string) (uint32, error) {
	if err := h.w.step("user"); err != nil {
		return 0, err
	}
	for uid := uint32(1000); ; uid++ {
		if h.w.hold(fmt.Sprint("user ", uid)) == nil {
			return uid, nil
		}
	}
}
func (h *fakeHost) ClaimUser(uid uint32, vm string) error {
	_ = h.w.hold(fmt.Sprint("user ", uid)) // the agent that was lost had it
	return nil
}
func (h *fakeHost) ReleaseUser(uid uint32, vm string) { h.w.drop(fmt.Sprint("user ", uid)) }
func (h *fakeHost) PlanCgroup(vm string, _ time.Duration) host.Cgroup {
	return host.Cgroup{Version: 2, Paths: map[string]string{"": "/vmlet/" + vm}}
}
func (h *fakeHost) MakeCgroup(c host.Cgroup) error {
	if err := h.w.step("cgroup"); err != nil {
		return err
	}
	return h.w.hold("cgroup " + c.Path())
}
func (h *fakeHost) StartInCgroup(c host.Cgroup, start func(*syscall.SysProcAttr) (int, error)) (bool, error) {
	if err := h.w.step("join"); err != nil {
		return false, err
	}
	_, err := start(new(syscall.SysProcAttr))
	return !h.w.has("no cgroup can be joined"), err
}

// EndProcesses can't end what a test has a user keep.
func (h *fakeHost) EndProcesses(_ context.Context, c host.Cgroup, uid uint32) error {
	h.w.mu.Lock()
	h.w.searched = append(h.w.searched, c.Path())
	h.w.mu.Unlock()
	if h.w.has(fmt.Sprint("process of user ", uid)) {
		return fmt.Errorf("a process of user %d does not end", uid)
	}
	return nil
}
func (h *fakeHost) RemoveCgroup(c host.Cgroup) error {
	if p := h.w.proc(filepath.Base(c.Path())); p != nil && p.alive() {
		return errors.New("a process is in the cgroup")
	}
	h.w.drop("cgroup " + c.Path())
	return nil
}
func (h *fakeHost) GrantDevice(path string, uid uint32) (bool, error) {
	if err := h.w.step("device"); err != nil {
		return false, err
	}
	return true, h.w.hold(fmt.Sprint("device ", path, " ", uid))
}
func (h *fakeHost) RevokeDevice(path string, uid uint32) error {
	h.w.drop(fmt.Sprint("device ", path, " ", uid))
	return nil
}
func (h *fakeHost) RevokeFile(path, _ string, uid uint32) error {
	h.w.drop(fmt.Sprint("file ", path, " ", uid))
	return nil
}
func (h *fakeHost) RemoveTaps(string) error { return nil }
func (h *fakeHost) NoteTap(device string) (host.TapNote, error) {
	return host.TapNote{Device: device, Owner: -1, Group: -1, Persistent: true}, h.w.step("note " + device)
}
func (h *fakeHost) RestoreTap(n host.TapNote) error { return h.w.step("restore " + n.Device) }
func (h *fakeHost) OpenTap(r host.TapRequest) (*os.File, string, error) {
	if err := h.w.step("tap"); err != nil {
		return nil, "", err
	}
	f, err := os.Open(os.DevNull)
	return f, "tap0", err
}
func (h *fakeHost) MemoryPath(vm, id string, pageSize uint64) (string, error) {
	return "/ram/" + vm, h.w.step("memory path")
}
func (h *fakeHost) MemoryRoom() uint64 { return 1 << 40 }

func (h *fakeHost) RemoveMemory(path string) error {
	h.w.drop("memory " + path)
	return nil
}
func (h *fakeHost) Sweep(keep func(string) bool) (swept []string, err error) {
	for _, what := range h.w.holding() {
		for _, kind := range []string{"cgroup /vmlet/", "memory /ram/"} {
			if vm, found := strings.CutPrefix(what, kind); found && !keep(vm) {
				h.w.drop(what)
				swept = append(swept, vm)
			}
		}
	}
	return swept, nil
}
func (h *fakeHost) Close() error { return nil }

// fakeProc is a shim and its VMM.
type fakeProc struct {
	w        *World
	pid      int
	options  shim.StartOptions
	mu       sync.Mutex
	launched *plan.Plan
	paused   bool
	saving   *shim.Save
	deaf     bool // answers no connection
	pod      *fakePod
	conns    []*fakeShim
	monitors []*fakeMonitor
	dead     chan struct{}

	attached []string
	taps     int
	notes    []json.RawMessage
	vcpus    int
	balloon  uint64
}

func (p *fakeProc) alive() bool {
	select {
	case <-p.dead:
		return false
	default:
		return true
	}
}

func (p *fakeProc) newMonitor() (vmm.Monitor, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &fakeMonitor{proc: p, events: make(chan vmm.Event, 16)}
	p.monitors = append(p.monitors, m)
	return m, nil
}

// end ends shim and VMM, with a word (exit.json) or without.
func (p *fakeProc) end(e *shim.Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return
	}
	if e != nil {
		e.RunID, e.Time = p.options.RunID, time.Now()
		b, err := json.Marshal(e)
		if err == nil {
			err = os.WriteFile(filepath.Join(p.options.StateDir, shim.ExitName), b, 0o600)
		}
		if err != nil {
			p.w.t.Error(err)
		}
	}
	for _, m := range p.monitors {
		m.Close()
	}
	if p.launched != nil {
		p.w.drop("memory " + p.launched.Memory.Path)
		for _, what := range granting(p.launched) {
			if e != nil { // else it was killed, and takes back nothing
				p.w.drop(what)
			}
		}
	}
	close(p.dead)
	for _, c := range p.conns {
		if e != nil {
			c.events <- shim.Event{Exit: e}
		}
		c.hangUp()
	}
	p.conns = nil
}

// fakeShims are the processes of a world.
type fakeShims struct{ w *World }

func (s fakeShims) Start(_ context.Context, o shim.StartOptions) (Shim, int, error) {
	if err := s.w.step("shim"); err != nil {
		return nil, 0, err
	}
	for _, dir := range []string{o.RunDir, o.StateDir} {
		if _, err := os.Stat(dir); err != nil {
			s.w.t.Errorf("the shim's folder: %v", err)
		}
	}
	p := s.newProc(o)
	if err := o.Within(func(*syscall.SysProcAttr) (int, error) { return p.pid, nil }); err != nil {
		close(p.dead)
		return nil, 0, err
	}
	return p.connect(), p.pid, nil
}

func (s fakeShims) newProc(o shim.StartOptions) *fakeProc {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if p := s.w.procs[o.RunDir]; p != nil && p.alive() {
		s.w.t.Errorf("a second shim in %s", o.RunDir)
	}
	s.w.nextPID++
	p := &fakeProc{w: s.w, pid: s.w.nextPID, options: o, dead: make(chan struct{})}
	s.w.procs[o.RunDir] = p
	return p
}

func (p *fakeProc) connect() *fakeShim {
	c := &fakeShim{proc: p, events: make(chan shim.Event, 8)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, c)
	return c
}

func (s fakeShims) find(runDir string) (*fakeProc, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	p := s.w.procs[runDir]
	switch {
	case p == nil:
		return nil, fs.ErrNotExist
	case !p.alive():
		return nil, os.ErrProcessDone
	}
	return p, nil
}

func (s fakeShims) Dial(_ context.Context, runDir string) (Shim, error) {
	p, err := s.find(runDir)
	if err != nil {
		return nil, err
	}
	if p.deaf {
		_ = s.w.step("dial")
		return nil, errors.New("no answer")
	}
	return p.connect(), nil
}

// fakeConn only says which process it leads to.
type fakeConn struct {
	net.Conn
	proc *fakeProc
}

func (s fakeShims) DialSocket(_ context.Context, runDir, name string) (net.Conn, error) {
	p, err := s.find(runDir)
	return &fakeConn{proc: p}, err
}

func (s fakeShims) Process(runDir string) (ShimProcess, error) {
	if err := s.w.step("process"); err != nil {
		return nil, err
	}
	p, err := s.find(runDir)
	if err != nil {
		return nil, err
	}
	return fakeProcess{p}, nil
}

type fakeProcess struct{ p *fakeProc }

func (f fakeProcess) PID() int     { return f.p.pid }
func (f fakeProcess) Alive() bool  { return f.p.alive() }
func (f fakeProcess) Close() error { return nil }
func (f fakeProcess) Kill() error  { f.p.end(nil); return nil }
func (f fakeProcess) Wait(ctx context.Context) error {
	select {
	case <-f.p.dead:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
