package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
)

// fakePlug is a VMM's devices, by their instructions. A guest lets go of those alone
// that don't begin with "kept".
type fakePlug struct {
	mu      sync.Mutex
	fail    error
	victim  int            // 0: nobody, else the process that has to die for it
	devices map[string]int // with how many files
	gone    chan struct{}  // closed when the guest lets all go
}

// onPlug makes what comes and goes fail, or costs a process its life.
func (m *fakeMachine) onPlug(fail error, victim int) {
	m.plug.mu.Lock()
	defer m.plug.mu.Unlock()
	m.plug.fail, m.plug.victim = fail, victim
}

func (p *fakePlug) refuses() error {
	if p.victim != 0 {
		return errors.Join(control.ErrMonitorClosed, unix.Kill(p.victim, unix.SIGKILL))
	}
	return p.fail
}

func (m *fakeMachine) Attach(_ context.Context, a control.Attachment) error {
	m.plug.mu.Lock()
	defer m.plug.mu.Unlock()
	if err := m.plug.refuses(); err != nil {
		return err
	}
	if m.plug.devices == nil {
		m.plug.devices, m.plug.gone = make(map[string]int), make(chan struct{})
	}
	m.plug.devices[string(a.Instructions)] = len(a.Files)
	return nil
}

func (m *fakeMachine) Detach(ctx context.Context, instructions json.RawMessage) error {
	m.plug.mu.Lock()
	defer m.plug.mu.Unlock()
	if err := m.plug.refuses(); err != nil {
		return err
	}
	select {
	case <-m.plug.gone:
	default:
		if strings.HasPrefix(string(instructions), `"kept`) {
			m.plug.mu.Unlock()
			<-ctx.Done()
			m.plug.mu.Lock()
			return fmt.Errorf("%w: %w", control.ErrGuestKeeps, ctx.Err())
		}
	}
	delete(m.plug.devices, string(instructions))
	return nil
}

func (m *fakeMachine) AwaitGone(ctx context.Context, _ json.RawMessage) error {
	select {
	case <-m.plug.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *fakeMachine) plugged() map[string]int {
	m.plug.mu.Lock()
	defer m.plug.mu.Unlock()
	all := make(map[string]int)
	for device, files := range m.plug.devices {
		all[device] = files
	}
	return all
}

// attachment is one of a writable disk.
func (s *scene) attachment(name string) (shim.Attach, string) {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), name)
	s.check(os.WriteFile(path, make([]byte, 4096), 0o600))
	return shim.Attach{
		Attachment: &plan.Attachment{
			Device: name, Instructions: json.RawMessage(`"` + name + `"`),
			Files: []plan.File{{Kind: plan.FilePath, Field: "disks[1].path", Path: path, Write: true, DiskName: name}},
		},
		Note: json.RawMessage(`{"attached":"` + name + `"}`),
	}, path
}

func detachment(name string, within time.Duration) shim.Detach {
	return shim.Detach{
		Detachment: &plan.Detachment{Device: name, DiskName: name, Instructions: json.RawMessage(`"` + name + `"`)},
		Within:     within, Note: json.RawMessage(`{"detached":"` + name + `"}`),
	}
}

// holds counts this process's descriptors of a file.
func (s *scene) holds(path string) int {
	s.t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	s.check(err)
	count := 0
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && target == path {
			count++
		}
	}
	return count
}

// notes are what an agent that comes now is told.
func (s *scene) notes() (all []string) {
	s.t.Helper()
	for _, n := range s.dial().Welcome().Notes {
		all = append(all, string(n))
	}
	return all
}

func (s *scene) savedDisks() (names []string) {
	s.t.Helper()
	dir := filepath.Join(s.t.TempDir(), "image")
	_, err := s.client.Save(s.ctx, s.saveArgs(dir), nil, func(shim.Progress) {})
	s.check(err)
	_, err = s.client.Commit(s.ctx, shim.Commit{KeepRunning: true})
	s.check(err)
	image, err := memory.Open(dir)
	s.check(err)
	defer image.Close()
	for _, d := range image.Manifest().Disks {
		names = append(names, d.Name)
	}
	return names
}

// isTold wants an agent's next event to be a note.
func (s *scene) isTold(agent *shim.Client, want string) {
	s.t.Helper()
	select {
	case e := <-agent.Events():
		if got := string(e.Note); got != want {
			s.t.Errorf("another agent is told %q, want %q", got, want)
		}
	case <-s.ctx.Done():
		s.t.Errorf("another agent isn't told %q", want)
	}
}

// TestVMMDiesInPlug: who had a device come or go is told how the VMM ended, not that its
// monitor is closed.
func TestVMMDiesInPlug(t *testing.T) {
	for name, do := range map[string]func(*scene) error{
		"attach": func(s *scene) error {
			attach, _ := s.attachment("data")
			return s.client.Attach(s.ctx, attach, nil)
		},
		"detach": func(s *scene) error { return s.client.Detach(s.ctx, detachment("data", time.Minute)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, nil)
			s.machine.onPlug(nil, s.launch())
			if err := do(s); err == nil || !strings.Contains(err.Error(), "SIGKILL") {
				t.Errorf("error %v does not say why", err)
			}
			s.exit()
		})
	}
}

func TestAttachAndDetach(t *testing.T) {
	s := newScene(t, nil)
	s.launch()
	attach, path := s.attachment("data")
	other := s.dial() // an agent that came before the device did
	s.check(s.client.Attach(s.ctx, attach, nil))
	s.isTold(other, `{"attached":"data"}`)
	if got := s.machine.plugged(); got[`"data"`] != 1 {
		t.Errorf("the VMM has %v", got)
	}
	if got := s.savedDisks(); !reflect.DeepEqual(got, []string{"data"}) {
		t.Errorf("an image has the disks %q", got)
	}
	if got, want := s.notes(), []string{`{"attached":"data"}`}; !reflect.DeepEqual(got, want) {
		t.Errorf("notes %q, want %q", got, want)
	}
	wantCode(t, s.client.Attach(s.ctx, attach, nil), shim.CodePrecondition)

	s.check(s.client.Detach(s.ctx, detachment("data", time.Minute)))
	s.isTold(other, `{"detached":"data"}`)
	if got := s.machine.plugged(); len(got) != 0 {
		t.Errorf("the VMM has %v", got)
	}
	if n := s.holds(path); n != 0 {
		t.Errorf("the shim still has %d descriptors of the disk", n)
	}
	if got := s.savedDisks(); got != nil {
		t.Errorf("an image has the disks %q", got)
	}
	if got, want := s.notes(), []string{`{"detached":"data"}`}; !reflect.DeepEqual(got, want) {
		t.Errorf("notes %q, want %q", got, want)
	}
	s.check(s.client.Attach(s.ctx, attach, nil))
	if got, want := s.notes(), []string{`{"attached":"data"}`}; !reflect.DeepEqual(got, want) {
		t.Errorf("notes %q, want %q", got, want)
	}
}

func TestAttachFails(t *testing.T) {
	s := newScene(t, nil)
	attach, path := s.attachment("data")
	wantCode(t, s.client.Attach(s.ctx, attach, nil), shim.CodePrecondition) // nothing runs
	s.launch()
	for name, change := range map[string]func(a *plan.Attachment){
		"no file":        func(a *plan.Attachment) { a.Files[0].Path = path + "-not" },
		"not received":   func(a *plan.Attachment) { a.Files = append(a.Files, plan.File{Kind: plan.FileReceived}) },
		"another kind":   func(a *plan.Attachment) { a.Files = append(a.Files, plan.File{Kind: plan.FileListen, Path: "x"}) },
		"without a name": func(a *plan.Attachment) { a.Device = "" },
	} {
		attach, path := s.attachment("data")
		change(attach.Attachment)
		wantCode(t, s.client.Attach(s.ctx, attach, nil), shim.CodeInvalid)
		if n := s.holds(path); n != 0 {
			t.Errorf("%s: the shim has %d descriptors of the disk", name, n)
		}
	}
	wantCode(t, s.client.Attach(s.ctx, shim.Attach{}, nil), shim.CodeInvalid)
	wantCode(t, s.client.Detach(s.ctx, shim.Detach{}), shim.CodeInvalid)

	s.machine.onPlug(errors.New("the VMM can't"), 0)
	wantCode(t, s.client.Attach(s.ctx, attach, nil), shim.CodeInternal)
	if n := s.holds(path); n != 0 || s.notes() != nil {
		t.Errorf("the shim has %d descriptors of the disk, and the notes %q", n, s.notes())
	}
	if got := s.savedDisks(); got != nil {
		t.Errorf("an image has the disks %q", got)
	}
}

// TestGuestLetsGoLater: it is a detachment all the same, of which agents are told.
func TestGuestLetsGoLater(t *testing.T) {
	s := newScene(t, nil)
	s.launch()
	attach, path := s.attachment("kept")
	s.check(s.client.Attach(s.ctx, attach, nil))
	for range 2 {
		wantCode(t, s.client.Detach(s.ctx, detachment("kept", time.Millisecond)), shim.CodeTimeout)
	}
	if s.holds(path) == 0 || s.machine.plugged()[`"kept"`] != 1 {
		t.Error("the disk is gone, though the guest kept it")
	}
	close(s.machine.plug.gone)
	select {
	case e := <-s.client.Events():
		if string(e.Note) != `{"detached":"kept"}` {
			t.Errorf("the event %+v", e)
		}
	case <-s.ctx.Done():
		t.Fatal("nothing was told")
	}
	if n := s.holds(path); n != 0 || len(s.machine.plugged()) != 0 {
		t.Errorf("the shim still has %d descriptors, and the VMM %v", n, s.machine.plugged())
	}
	if got, want := s.notes(), []string{`{"detached":"kept"}`}; !reflect.DeepEqual(got, want) {
		t.Errorf("notes %q, want %q", got, want)
	}
}

// TestOthersAreServedDuringDetach: what is undone for a device may wait for another shim's
// lock, and nobody else waits for that, nor is the device gone before.
func TestOthersAreServedDuringDetach(t *testing.T) {
	s := newScene(t, nil)
	s.launch()
	attach, _ := s.attachment("data")
	s.check(s.client.Attach(s.ctx, attach, nil))
	waiting, goOn := make(chan struct{}), make(chan struct{})
	s.server.mu.Lock()
	s.server.vm.plugs.attached["data"].Push(func() error {
		close(waiting)
		<-goOn
		return nil
	})
	s.server.mu.Unlock()
	detached := make(chan error)
	go func() { detached <- s.client.Detach(s.ctx, detachment("data", time.Minute)) }()
	<-waiting
	if got, want := s.notes(), []string{`{"attached":"data"}`}; !reflect.DeepEqual(got, want) {
		t.Errorf("notes %q, want %q", got, want)
	}
	wantCode(t, s.dial().Attach(s.ctx, attach, nil), shim.CodePrecondition)
	close(goOn)
	s.check(<-detached)
	if got, want := s.notes(), []string{`{"detached":"data"}`}; !reflect.DeepEqual(got, want) {
		t.Errorf("notes %q, want %q", got, want)
	}
}
