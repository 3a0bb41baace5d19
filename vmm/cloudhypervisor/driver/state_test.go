package driver

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// TestSaveFails has each call of a save fail in each way, of a VM that is taken away
// for its disk's sake: the guest goes on afterwards, or the VMM has ended.
func TestSaveFails(t *testing.T) {
	const late = 100 // milliseconds, after which nobody waits any more
	for _, call := range []string{"vm.info", "vm.snapshot", "vm.delete"} {
		for name, c := range map[string]struct {
			knobs       chtest.Knobs
			gone, short bool
		}{
			"refuses":          {knobs: chtest.Knobs{Refuse: map[string][]string{call: {"no"}}}},
			"answers nonsense": {knobs: chtest.Knobs{Answer: map[string]chtest.Answer{call: {Body: "nonsense\n", Raw: true}}}},
			"answers too much": {knobs: chtest.Knobs{Answer: map[string]chtest.Answer{call: {Body: "[", Status: 500, Size: 8 << 20}}}},
			"hangs":            {knobs: chtest.Knobs{Answer: map[string]chtest.Answer{call: {Hang: true}}}, short: true},
			"is late":          {knobs: chtest.Knobs{Slow: map[string]int{call: 3 * late}}, short: true},
			"dies":             {knobs: chtest.Knobs{Die: map[string]chtest.Death{call: {}}}, gone: true},
			"dies after":       {knobs: chtest.Knobs{Die: map[string]chtest.Death{call: {Done: true}}}, gone: true},
		} {
			t.Run(call+" "+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				m := r.stopped()
				ctx := r.ctx
				if c.short {
					short, cancel := context.WithTimeout(ctx, late*time.Millisecond)
					defer cancel()
					ctx = short
				}
				r.turn(c.knobs)
				err := m.SaveState(ctx, r.file(), true)
				if err == nil {
					t.Fatal("it is saved")
				}
				if len(err.Error()) > 2<<10 {
					t.Errorf("an error of %d bytes", len(err.Error()))
				}
				r.turn(chtest.Knobs{})
				if !c.gone {
					r.runs(m)
				} else if err := m.Continue(r.ctx); !errors.Is(err, control.ErrMonitorClosed) {
					t.Errorf("then %v", err)
				}
			})
		}
	}
}

// TestSnapshotIsNotWhole has a VMM that says that all is well.
func TestSnapshotIsNotWhole(t *testing.T) {
	r := newRig(t)
	m := r.stopped()
	r.turn(chtest.Knobs{Answer: map[string]chtest.Answer{"vm.snapshot": {Status: 204}}})
	if err := m.SaveState(r.ctx, r.file(), true); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	r.turn(chtest.Knobs{})
	r.runs(m)
}

// TestSavedAgain has a VM that doesn't come back after it was saved: what it was can
// be saved again, and it comes back when it can.
func TestSavedAgain(t *testing.T) {
	for name, knobs := range map[string]chtest.Knobs{
		"refused":  {Refuse: map[string][]string{"vm.restore": {"no"}}},
		"nonsense": {Answer: map[string]chtest.Answer{"vm.restore": {Raw: true, Body: "?\n"}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			m := r.stopped()
			first, again := r.file(), r.file()
			r.check(m.SaveState(r.ctx, first, true))
			r.turn(knobs)
			for range 2 {
				if err := m.Regain(r.ctx); err == nil {
					t.Fatal("it came back")
				}
			}
			if ran, err := m.Stop(r.ctx); ran || err != nil {
				t.Errorf("stopping what isn't there: %t, %v", ran, err)
			}
			r.check(m.SaveState(r.ctx, again, true))
			if a, b := r.content(first), r.content(again); len(a) == 0 || !sameState(a, b) {
				t.Error("the two differ")
			}
			r.turn(chtest.Knobs{})
			r.check(m.Regain(r.ctx))
			info, err := m.api.Info(r.ctx)
			if r.check(err); info.State != chapi.StatePaused {
				t.Errorf("it is %s", info.State)
			}
			r.runs(m)
		})
	}
}

// sameState goes by the device state: the configuration was changed for the process
// that is there.
func sameState(a, b string) bool {
	_, a, _ = strings.Cut(a, stateName)
	_, b, _ = strings.Cut(b, stateName)
	return a == b
}

// TestAnswerIsLost: that a VM came back is found out.
func TestAnswerIsLost(t *testing.T) {
	r := newRig(t)
	m := r.stopped()
	r.check(m.SaveState(r.ctx, r.file(), true))
	r.check(m.bringBack(r.ctx, m.away())) // and nobody heard of it
	r.check(m.Regain(r.ctx))
	r.runs(m)
}

// TestLeftovers has a VM in place of the one that was taken away, which was never
// booted: it is not taken for it.
func TestLeftovers(t *testing.T) {
	r := newRig(t)
	m := r.stopped()
	r.check(m.SaveState(r.ctx, r.file(), true))
	r.check(m.api.Create(r.ctx, &m.vm.Config))
	r.check(m.Regain(r.ctx))
	info, err := m.api.Info(r.ctx)
	if r.check(err); info.State != chapi.StatePaused {
		t.Errorf("it is %s", info.State)
	}
}

// TestNotBootedTwice: a VM whose reset has failed comes without its disks if it is
// booted.
func TestNotBootedTwice(t *testing.T) {
	r := newRig(t)
	m := r.connect()
	r.check(m.Continue(r.ctx))
	r.check(m.api.Shutdown(r.ctx)) // as a reset leaves it that fails
	for !m.hub.now().BootTried {
		time.Sleep(time.Millisecond)
	}
	if err := m.Continue(r.ctx); err == nil || !strings.Contains(err.Error(), "kill the VM, and start it") {
		t.Error(err)
	}
}

// TestBootFails: what is left of the VM is taken away, in bounded time.
func TestBootFails(t *testing.T) {
	r := newRig(t)
	m := r.connect()
	r.turn(chtest.Knobs{Refuse: map[string][]string{"vm.boot": {"no such thing"}}})
	if err := m.Continue(r.ctx); err == nil || !strings.Contains(err.Error(), "no such thing") {
		t.Error(err)
	}
	if _, err := m.api.Info(r.ctx); !errors.Is(err, chapi.ErrNotCreated) {
		t.Error(err)
	}
}

// TestLoadFails has each call of a restore fail; the launch that it belongs to ends
// the VMM then.
func TestLoadFails(t *testing.T) {
	state := saved(t)
	for name, knobs := range map[string]chtest.Knobs{
		"":        {},
		"refused": {Refuse: map[string][]string{"vm.restore": {"no"}}},
		"hangs":   {Answer: map[string]chtest.Answer{"vm.restore": {Hang: true}}},
		"dies":    {Die: map[string]chtest.Death{"vm.restore": {}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.plan.Restore = &plan.Restore{}
			m := r.connect()
			f := r.file()
			_, err := f.WriteString(state)
			r.check(err)
			ctx, cancel := context.WithTimeout(r.ctx, patience)
			if name == "hangs" {
				ctx, cancel = context.WithTimeout(r.ctx, 100*time.Millisecond)
			}
			defer cancel()
			r.turn(knobs)
			err = m.LoadState(ctx, f, true)
			if (err == nil) != (name == "") || errors.Is(err, control.ErrMonitorClosed) != (name == "dies") {
				t.Error(err)
			}
			if name == "" {
				r.runs(m)
			}
		})
	}
}

// saved is the state of a VM.
func saved(t *testing.T) string {
	t.Helper()
	r := newRig(t)
	m, f := r.stopped(), r.file()
	r.check(m.SaveState(r.ctx, f, true))
	return r.content(f)
}

// TestConnectFails has each call of a launch fail.
func TestConnectFails(t *testing.T) {
	for name, knobs := range map[string]chtest.Knobs{
		"refused":  {Refuse: map[string][]string{"vm.create": {"no"}}},
		"nonsense": {Answer: map[string]chtest.Answer{"vm.create": {Raw: true, Body: "SSH-2.0\r\n"}}},
		"dies":     {Die: map[string]chtest.Death{"vm.create": {}}},
		"endless":  {Answer: map[string]chtest.Answer{"vm.create": {Raw: true, Body: "HTTP/1.1 204 OK\r\nX: y\r\n", Size: 1 << 20}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.turn(knobs)
			if _, err := r.tryConnect(); err == nil || len(err.Error()) > 2<<10 {
				t.Error(err)
			}
			if _, err := r.link.Events.Stat(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("the events' pipe: %v", err)
			}
		})
	}
}

// TestLies has a VMM say what it likes of its state.
func TestLies(t *testing.T) {
	r := newRig(t)
	m := r.connect()
	for _, body := range []string{
		`{"state":"` + strings.Repeat("x", 1<<20) + `"}`,
		`{"state":7}`, `[]`, `{"state":"Running","config":{"cpus":{"boot_vcpus":` + strings.Repeat("1", 1<<20) + `}}}`,
		strings.Repeat(`[{`, 1<<20),
	} {
		r.turn(chtest.Knobs{Answer: map[string]chtest.Answer{"vm.info": {Body: body}}})
		for _, call := range []func(context.Context) error{
			m.Continue, func(ctx context.Context) error { return m.SaveState(ctx, r.file(), true) },
		} {
			if err := call(r.ctx); err == nil || len(err.Error()) > 2<<10 {
				t.Errorf("%.40s: %.100v", body, err)
			}
		}
	}
}
