package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
)

// patience bounds a test; nothing waits for as long unless it is broken.
const patience = time.Minute

// The test's own program is the VMM, too, or a stranger that connects.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case "fake-vmm":
			fakeVMM(os.Args[2])
		case "companion":
			beCompanion(os.Args[2], os.Args[3])
		case "stranger":
			stranger(os.Args[2])
		}
	}
	os.Exit(m.Run())
}

// fakeVMM has its monitor as its first file. Through it, it is told to exit
// with a status. How "dead" differs: it never comes up. "talks" says much as it ends.
func fakeVMM(how string) {
	fmt.Fprintln(os.Stderr, "fake VMM:", how)
	if how == "dead" {
		os.Exit(3)
	}
	l, err := net.FileListener(os.NewFile(plan.FirstFile, "monitor"))
	if err != nil {
		os.Exit(4)
	}
	conn, err := l.Accept()
	if err != nil {
		os.Exit(5)
	}
	line, _ := bufio.NewReader(conn).ReadByte()
	if how == "talks" {
		_, _ = os.NewFile(plan.FirstFile+2, "console").WriteString(lastSaid())
	}
	os.Exit(int(line - '0'))
}

// lastSaid is more than a socket takes, and less than a client of the console may be behind: on a
// busy machine it reads none of it before all is there.
func lastSaid() string { return strings.Repeat("0123456789abcdef", 15<<10) }

func stranger(path string) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		os.Exit(2)
	}
	// Whoever is let in is answered.
	if _, err := shim.NewClient(context.Background(), conn.(*net.UnixConn)); err != nil {
		fmt.Println(err)
		os.Exit(0)
	}
	os.Exit(1)
}

// monitorSocket is the fake VMM's.
const monitorSocket = "monitor.sock"

// fakeDriver has machines that do as the test says.
type fakeDriver struct {
	machine *fakeMachine

	mu      sync.Mutex
	connect func(ctx context.Context) error // nil: as ever

	explain *shim.Error // what the last words are said to mean
	// next is that of the second VMM that is connected to; nil: there is none.
	next *fakeMachine
}

func (d *fakeDriver) onExplain(fault *shim.Error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.explain = fault
}

func (d *fakeDriver) Explain(_ *plan.Plan, words string) (string, *shim.Error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.explain == nil {
		return words, nil
	}
	return strings.ToUpper(words), d.explain
}

func (d *fakeDriver) onConnect(connect func(context.Context) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.connect = connect
}

func (d *fakeDriver) Connect(ctx context.Context, link control.Link) (control.Machine, error) {
	d.mu.Lock()
	connect, machine := d.connect, d.machine
	if machine.conn != nil && d.next != nil {
		machine = d.next
	}
	d.mu.Unlock()
	if connect != nil {
		if err := connect(ctx); err != nil {
			return nil, err
		}
	}
	conn, err := link.Dial(ctx, monitorSocket)
	if err != nil {
		return nil, err
	}
	machine.conn, machine.reset = conn, link.Reset
	return machine, nil
}

type fakeMachine struct {
	conn   net.Conn
	ending control.Ending

	mu      sync.Mutex
	running bool
	// save and proceed stand for what can fail; nil: it doesn't.
	save    func(ctx context.Context, f *os.File) error
	proceed func() error

	// send, receive and begin stand for what can go wrong in a handover; nil: nothing does.
	send    func(ctx context.Context, stopped func() error) error
	receive func(ctx context.Context) error
	begin   func() error

	plug fakePlug
	// displays are the VMM's ends of what clients were given; guest is its agent.
	displays chan net.Conn
	guest    fakeGuest
	// reset is what the shim wants to be told of.
	reset func()
	// deaf is how many times the guest does not hear its power button.
	deaf atomic.Int32
	// ended is called when the VMM has ended, closed when all is taken back; nil: neither is.
	ended, closed func()
}

func (m *fakeMachine) onSave(save func(context.Context, *os.File) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.save = save
}

func (m *fakeMachine) onContinue(proceed func() error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.proceed = proceed
}

func (m *fakeMachine) set(running bool) (was bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was, m.running = m.running, running
	return was
}

func (m *fakeMachine) isRunning() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}

func (m *fakeMachine) Stop(context.Context) (bool, error) { return m.set(false), nil }

func (m *fakeMachine) Continue(context.Context) error {
	m.mu.Lock()
	proceed := m.proceed
	m.mu.Unlock()
	if proceed != nil {
		if err := proceed(); err != nil {
			return err
		}
	}
	m.set(true)
	return nil
}

func (m *fakeMachine) Regain(context.Context) error { return nil }

func (m *fakeMachine) SaveState(ctx context.Context, f *os.File, _ bool) error {
	m.mu.Lock()
	save := m.save
	m.mu.Unlock()
	if save != nil {
		return save(ctx, f)
	}
	_, err := f.WriteString("state")
	return err
}

func (m *fakeMachine) LoadState(context.Context, *os.File, bool) error { return nil }
func (m *fakeMachine) Quit(context.Context) error                      { return m.exit('0') }

func (m *fakeMachine) PowerDown(context.Context) error {
	if m.deaf.Add(-1) >= 0 {
		return nil
	}
	return m.exit('0')
}

func (m *fakeMachine) Ending(context.Context) control.Ending {
	if m.ended != nil {
		m.ended()
	}
	return m.ending
}

func (m *fakeMachine) Close() error {
	if m.closed != nil {
		m.closed()
	}
	return m.conn.Close()
}

func (m *fakeMachine) exit(status byte) error {
	_, err := m.conn.Write([]byte{status})
	return err
}

// scene is a shim within the test, with one agent.
type scene struct {
	t       *testing.T
	ctx     context.Context
	options Options
	root    string
	ram     string
	driver  *fakeDriver
	machine *fakeMachine
	server  *Server
	client  *shim.Client
	ended   chan error // of Run
	stop    context.CancelFunc
}

func newScene(t *testing.T, change func(*Options)) *scene {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	machine := &fakeMachine{displays: make(chan net.Conn, 8)}
	s := &scene{t: t, ctx: ctx, root: t.TempDir(), driver: &fakeDriver{machine: machine}, machine: machine}
	ramDir, err := os.MkdirTemp("/dev/shm", "vmlet-test")
	s.check(err)
	t.Cleanup(func() { os.RemoveAll(ramDir) })
	s.ram = filepath.Join(ramDir, "ram")
	s.options = Options{
		RunDir: filepath.Join(s.root, "run"), StateDir: filepath.Join(s.root, "state"), RunID: "run-1",
		Drivers: map[string]control.Driver{"fake": s.driver},
		Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	s.check(os.Mkdir(s.options.RunDir, 0o700))
	s.check(os.Mkdir(s.options.StateDir, 0o700))
	if change != nil {
		change(&s.options)
	}
	s.listen()
	s.serve()
	s.client = s.dial()
	return s
}

func (s *scene) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) listen() {
	s.t.Helper()
	var err error
	s.options.Listener, err = shim.Listen(s.options.RunDir)
	s.check(err)
}

func (s *scene) serve() {
	s.t.Helper()
	server, err := New(s.options)
	s.check(err)
	s.server = server
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	ended := make(chan error, 1)
	s.ended = ended
	go func() { ended <- server.Run(ctx) }()
	s.t.Cleanup(func() {
		if s.client != nil {
			kill, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, _ = s.client.Kill(kill) // it may have ended
			s.client.Close()
		}
		stop()
		s.check(<-ended)
	})
}

func (s *scene) dial() *shim.Client {
	s.t.Helper()
	client, err := shim.Dial(s.ctx, s.options.RunDir)
	s.check(err)
	s.t.Cleanup(func() { client.Close() })
	return client
}

const fakeRAM = 4 << 20

func (s *scene) plan(how string) *plan.Plan {
	program, err := os.Executable()
	s.check(err)
	return &plan.Plan{
		Name: "test", ID: "id", VMM: "fake", Program: program, Args: []string{"fake-vmm", how},
		Files:  []plan.File{{Kind: plan.FileListen, Path: monitorSocket}, {Kind: plan.FileMemory}, {Kind: plan.FileConsole}},
		Memory: plan.Memory{Size: fakeRAM, Path: s.ram},
	}
}

func (s *scene) launch() int {
	s.t.Helper()
	launched, err := s.client.Launch(s.ctx, shim.Launch{Plan: s.plan("well")}, nil, nil)
	s.check(err)
	// The guest touches memory.
	ram, err := os.OpenFile(s.ram, os.O_WRONLY, 0)
	s.check(err)
	defer ram.Close()
	_, err = ram.Write(make([]byte, 1<<20))
	s.check(err)
	_, err = ram.WriteAt([]byte("the guest's"), 2<<20)
	s.check(err)
	return launched.VMMPID
}

func (s *scene) saveArgs(dir string) shim.Save {
	return shim.Save{Directory: dir, Manifest: memory.Manifest{VMM: memory.VMM{Name: "fake", Version: "1"}}}
}

// nothingNoted: of a save that is over nothing would be removed if the shim were killed.
func (s *scene) nothingNoted() bool {
	_, err := shim.ReadRemains(s.options.RunDir)
	return errors.Is(err, fs.ErrNotExist)
}

func (s *scene) noFile(path string) {
	s.t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		s.t.Errorf("%s is left: %v", path, err)
	}
}

func (s *scene) waitFor(done func() bool) {
	s.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatal("it does not come about")
		}
	}
}

func (s *scene) exit() *shim.Exit {
	s.t.Helper()
	select {
	case <-s.client.Done():
	case <-s.ctx.Done():
		s.t.Fatal("the shim does not end")
	}
	exit, err := shim.ReadExit(s.options.StateDir)
	s.check(err)
	return exit
}

func wantCode(t *testing.T, err error, code shim.Code) {
	t.Helper()
	var e *shim.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error %v, want one with code %s", err, code)
	}
}

// withEngine is a VM with a VMM.
func withEngine(v *vm, p *process, m control.Machine) *vm {
	v.engine.Store(&engine{p, m})
	return v
}
