package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/test/suites"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/driverkit"
	"github.com/vmlet/vmlet/vmm/remote"
	remotedriver "github.com/vmlet/vmlet/vmm/remote/driver"
)

// fakeDriver connects to a VMM that is made up.
type fakeDriver struct {
	link    control.Link
	machine control.Machine
}

func (d *fakeDriver) Connect(ctx context.Context, link control.Link) (control.Machine, error) {
	d.link = link
	conn, err := link.Dial(ctx, "vmm.sock")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := link.Dial(ctx, "other.sock"); err == nil {
		return nil, errors.New("a socket that the plan doesn't name was opened")
	}
	if _, err := link.Dial(ctx, shim.SocketName); err == nil {
		return nil, errors.New("the shim's own socket was opened")
	}
	_, err = conn.Write([]byte("hello"))
	return d.machine, err
}

func (d *fakeDriver) Explain(p *plan.Plan, words string) (string, *shim.Error) {
	return "readable " + words, &shim.Error{Code: shim.CodePrecondition, Field: "disks[0].path", Message: p.Name}
}

// fakeMachine notes what it is asked.
type fakeMachine struct {
	mu   sync.Mutex
	said []string
	// hangs: SaveState doesn't return before this is closed, whatever its context says.
	hangs chan struct{}
	// saving is closed when it has begun to hang.
	saving chan struct{}
}

func (m *fakeMachine) note(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = append(m.said, what)
}

func (m *fakeMachine) asked() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.said, ", ")
}

func (m *fakeMachine) Stop(context.Context) (bool, error) {
	m.note("stop")
	return true, driverkit.ErrVMMClosed
}
func (m *fakeMachine) Continue(context.Context) error { m.note("continue"); return nil }
func (m *fakeMachine) SaveState(ctx context.Context, f *os.File, shared bool) error {
	if m.hangs != nil {
		close(m.saving)
		<-m.hangs
		return ctx.Err()
	}
	_, err := f.WriteString("state")
	return err
}
func (m *fakeMachine) Regain(context.Context) error { m.note("regain"); return nil }
func (m *fakeMachine) LoadState(_ context.Context, f *os.File, shared bool) error {
	b, err := io.ReadAll(f)
	m.note("load " + string(b))
	return err
}
func (m *fakeMachine) PowerDown(context.Context) error { m.note("power down"); return nil }
func (m *fakeMachine) Quit(context.Context) error      { m.note("quit"); return nil }
func (m *fakeMachine) Ending(context.Context) control.Ending {
	return control.Ending{Shutdown: true, Closed: true}
}
func (m *fakeMachine) Close() error { m.note("close"); return nil }

// pluggable also takes devices.
type pluggable struct{ *fakeMachine }

func (p pluggable) Attach(_ context.Context, a control.Attachment) error {
	b, err := io.ReadAll(a.Files[0])
	p.note("attach " + string(a.Instructions) + " " + string(b))
	return err
}
func (p pluggable) Detach(context.Context, json.RawMessage) error { return control.ErrGuestKeeps }
func (p pluggable) AwaitGone(context.Context, json.RawMessage) error {
	return nil
}

// scene is a driver with a machine, and the shim's end of it.
type scene struct {
	machine control.Machine
	driver  *fakeDriver
	vmm     chan string // what came at the VMM's socket
}

func startScene(t *testing.T, m control.Machine) *scene {
	t.Helper()
	s := &scene{driver: &fakeDriver{machine: m}, vmm: make(chan string, 8)}
	own, other := pair(t)
	stack := driverkit.Stack{Version: "test", VMM: &fakeVMM{}, Driver: s.driver, Log: slog.New(slog.DiscardHandler)}
	served := make(chan error, 1)
	go func() { served <- driverkit.Serve(context.Background(), other, stack) }()
	folder := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(folder, "vmm.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b, _ := io.ReadAll(c)
			s.vmm <- string(b)
		}
	}()
	received := temporary(t)
	if _, err := received.WriteString("tap"); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	link := control.Link{
		Plan: &plan.Plan{Name: "web-1", Files: []plan.File{{Kind: plan.FileListen, Path: "vmm.sock"}}}, PID: 7, Received: []*os.File{received}, Folder: root,
		Dial: func(ctx context.Context, name string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(folder, name))
		},
		Listen: func(string) (*net.UnixListener, error) { return nil, errors.ErrUnsupported },
		Log:    slog.New(slog.DiscardHandler),
	}
	ctx, cancel := suites.Wait(t.Context(), t, awaits)
	defer cancel()
	if s.machine, err = remotedriver.New(ctx, own, link, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.machine.Close()
		select {
		case <-served:
		case <-suites.After(t, awaits):
			t.Error("the driver serves on though its connection has ended")
		}
	})
	return s
}

// TestMachineBehindTheProtocol has a machine do all that the shim asks.
func TestMachineBehindTheProtocol(t *testing.T) {
	fake := &fakeMachine{}
	s := startScene(t, pluggable{fake})
	if got := <-s.vmm; got != "hello" {
		t.Errorf("the driver said %q to the VMM, want hello", got)
	}
	if got := s.driver.link.PID; got != 7 {
		t.Errorf("pid %d, want 7", got)
	}
	if _, err := s.driver.link.Folder.Stat("vmm.sock"); err != nil {
		t.Errorf("the VMM's folder: %v", err)
	}
	ctx := t.Context()
	if ran, err := s.machine.Stop(ctx); !ran || !errors.Is(err, control.ErrMonitorClosed) {
		t.Errorf("Stop: %v, %v, want true and that the monitor is closed", ran, err)
	}
	if _, err := s.driver.link.Received[0].Stat(); err == nil {
		t.Error("what came with the plan is open though the launch is over")
	}
	f := temporary(t)
	if err := s.machine.SaveState(ctx, f, true); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{s.machine.LoadState(ctx, f, true), s.machine.Regain(ctx), s.machine.Continue(ctx), s.machine.PowerDown(ctx), s.machine.Quit(ctx)} {
		if err != nil {
			t.Error(err)
		}
	}
	if got := s.machine.Ending(ctx); got != (control.Ending{Shutdown: true, Closed: true}) {
		t.Errorf("ending is %+v", got)
	}
	plugger, can := s.machine.(control.Plugger)
	if !can {
		t.Fatal("it takes no devices")
	}
	device := temporary(t)
	if err := os.WriteFile(device.Name(), []byte("disk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := plugger.Attach(ctx, control.Attachment{Instructions: json.RawMessage(`{"a":1}`), Files: []*os.File{device}}); err != nil {
		t.Error(err)
	}
	if err := plugger.Detach(ctx, nil); !errors.Is(err, control.ErrGuestKeeps) {
		t.Errorf("Detach: %v, want that the guest keeps it", err)
	}
	if _, can := s.machine.(control.GuestAgent); can {
		t.Error("it has a guest's agent that the VMM has not")
	}
	want := "stop, load state, regain, continue, power down, quit, attach {\"a\":1} disk"
	if got := fake.asked(); got != want {
		t.Errorf("the VMM was asked %s, want %s", got, want)
	}
}

// TestSaveThatHangs: a driver that goes on with a save after the end of its context is cut
// off, so that the shim knows where it stands.
func TestSaveThatHangs(t *testing.T) {
	fake := &fakeMachine{hangs: make(chan struct{}), saving: make(chan struct{})}
	s := startScene(t, fake)
	defer close(fake.hangs)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { <-fake.saving; cancel() }()
	if err := s.machine.SaveState(ctx, temporary(t), true); err == nil {
		t.Error("it succeeded")
	}
	if err := s.machine.Continue(t.Context()); err == nil {
		t.Error("the driver is asked on")
	}
}

// TestExplain asks a driver about a VMM's last words.
func TestExplain(t *testing.T) {
	own, other := pair(t)
	go func() {
		_ = driverkit.Serve(context.Background(), other, driverkit.Stack{Version: "test", VMM: &fakeVMM{}, Driver: &fakeDriver{}})
	}()
	words, fault := remotedriver.Explain(t.Context(), own, &plan.Plan{Name: "web-1"}, "it is locked")
	if words != "readable it is locked" {
		t.Errorf("%q", words)
	}
	want := &shim.Error{
		Code: shim.CodePrecondition, Field: "disks[0].path", Message: "web-1", Parts: []contract.Fault{{Field: "disks[0].path", Text: "web-1"}},
	}
	if !reflect.DeepEqual(fault, want) {
		t.Errorf("%+v, want %+v", fault, want)
	}
}

// fakeVMM is one that the agent watches.
type fakeVMM struct {
	monitor *fakeMonitor
}

func (*fakeVMM) Traits(string) vmm.Traits { return vmm.Traits{Disks: []string{"virtio"}} }

func (*fakeVMM) Name() string { return "fake" }
func (*fakeVMM) Info(context.Context) (vmm.Info, error) {
	return vmm.Info{Name: "fake", Version: "1", Binary: "/usr/bin/fake"}, nil
}
func (*fakeVMM) Plan(vmm.PlanRequest) (*plan.Plan, error) { return nil, errors.ErrUnsupported }
func (*fakeVMM) Manifest(vmm.PlanRequest) (memory.Manifest, error) {
	return memory.Manifest{}, errors.ErrUnsupported
}
func (*fakeVMM) CheckImage(context.Context, *memory.Manifest) error { return nil }
func (v *fakeVMM) Connect(ctx context.Context, dial vmm.Dialer) (vmm.Monitor, error) {
	conn, err := dial(ctx, "vmm.sock")
	if err != nil {
		return nil, err
	}
	return v.monitor, conn.Close()
}

type fakeMonitor struct {
	events chan vmm.Event
	closed chan struct{}
	once   sync.Once
}

func (*fakeMonitor) Status(context.Context) (vmm.Status, error) {
	return vmm.Status{Running: true, Detail: "ok", DiskErrors: []vmm.DiskError{{Index: 64, NoSpace: true}}}, nil
}
func (*fakeMonitor) Pause(context.Context) error                   { return nil }
func (*fakeMonitor) Resume(context.Context) error                  { return errors.New("it can't") }
func (*fakeMonitor) Reset(context.Context) error                   { return nil }
func (*fakeMonitor) SetGuestTime(context.Context, time.Time) error { return vmm.ErrNoGuestAgent }
func (m *fakeMonitor) Events() <-chan vmm.Event                    { return m.events }
func (m *fakeMonitor) Close() error                                { m.once.Do(func() { close(m.closed) }); return nil }
func (*fakeMonitor) Screenshot(context.Context, bool) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("picture")), nil
}
func (*fakeMonitor) Sample(context.Context) (vmm.Sample, error) {
	n := uint64(1) << 60
	return vmm.Sample{Disks: []vmm.DiskSample{{Index: 1, Reads: &n}}, Balloon: &n}, nil
}
func (*fakeMonitor) Rest(context.Context) error { return nil }

// TestMonitorBehindTheProtocol has a monitor do all that the agent asks.
func TestMonitorBehindTheProtocol(t *testing.T) {
	fake := &fakeMonitor{events: make(chan vmm.Event), closed: make(chan struct{})}
	own, other := pair(t)
	go func() {
		_ = driverkit.Serve(context.Background(), other, driverkit.Stack{Version: "test", VMM: &fakeVMM{fake}})
	}()
	ctx, cancel := suites.Wait(t.Context(), t, awaits)
	defer cancel()
	m, err := remote.Watch(ctx, own, func(_ context.Context, name string) (net.Conn, error) {
		if name != "vmm.sock" {
			t.Errorf("the driver asks for %q", name)
		}
		a, b := pair(t)
		t.Cleanup(func() { b.Close() })
		return a, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Status(ctx)
	if err != nil || !s.Running || s.Detail != "ok" || len(s.DiskErrors) != 1 || s.DiskErrors[0] != (vmm.DiskError{Index: 64, NoSpace: true}) {
		t.Errorf("status %+v, %v", s, err)
	}
	if err := m.Resume(ctx); err == nil || !strings.Contains(err.Error(), "it can't") {
		t.Errorf("Resume: %v", err)
	}
	if err := m.SetGuestTime(ctx, time.Now()); !errors.Is(err, vmm.ErrNoGuestAgent) {
		t.Errorf("SetGuestTime: %v, want that there is no agent", err)
	}
	picture, err := m.(vmm.Screener).Screenshot(ctx, true)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(picture); string(b) != "picture" || err != nil {
		t.Errorf("the picture is %q, %v", b, err)
	}
	picture.Close()
	sample, err := m.(vmm.Sampler).Sample(ctx)
	if err != nil || len(sample.Disks) != 1 || *sample.Disks[0].Reads != 1<<60 || *sample.Balloon != 1<<60 || sample.Disks[0].Writes != nil {
		t.Errorf("sample %+v, %v", sample, err)
	}
	if _, can := m.(vmm.Resizer); can {
		t.Error("it has a size that the VMM has not")
	}
	at := time.Now().Add(-time.Minute).UTC().Truncate(time.Millisecond)
	fake.events <- vmm.Event{Time: at, Name: "RESET", Change: vmm.ChangeReset, Data: json.RawMessage(`{"guest":true}`)}
	if e := <-m.Events(); !e.Time.Equal(at) || e.Name != "RESET" || e.Change != vmm.ChangeReset || string(e.Data) != `{"guest":true}` {
		t.Errorf("event %+v", e)
	}
	close(fake.events)
	if _, more := <-m.Events(); more {
		t.Error("an event after the end")
	}
	select {
	case <-fake.closed:
	case <-ctx.Done():
		t.Error("the driver's monitor is open after the connection's end")
	}
}
