package probe

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu"
	"github.com/vmlet/vmlet/vmm/qemu/monitor"
	"github.com/vmlet/vmlet/vmm/qemu/qemutest"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
)

// running is a guest of a few hundred bytes, and the agent's monitor of it.
func running(t *testing.T, q *Program, info vmm.Info) (vmm.Monitor, *machine) {
	t.Helper()
	r := qemutest.Case{YAML: "memory: {size: 16Mi}\nboot: {kernel: {path: /boot/vmlinuz}}\n"}.Request(info)
	r.User = nil
	p, err := q.Plan(r)
	if err != nil {
		t.Fatal(err)
	}
	m := launch(t, p, resources{files: standIns(t, p)})
	go io.Copy(io.Discard, m.console)
	monitor, err := q.Connect(testContext(t), m.dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { monitor.Close() })
	return monitor, m
}

// await returns the next event that means this.
func await(t *testing.T, ctx context.Context, m vmm.Monitor, want vmm.Change) {
	t.Helper()
	for {
		select {
		case event, open := <-m.Events():
			if !open {
				t.Fatalf("the events ended before change %d", want)
			}
			if event.Time.IsZero() || event.Name == "" {
				t.Errorf("event without a name or time: %+v", event)
			}
			if event.Change == want {
				return
			}
		case <-ctx.Done():
			t.Fatalf("no event of change %d", want)
		}
	}
}

func TestMonitorOfRealQEMU(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, info vmm.Info) {
		ctx := testContext(t)
		monitor, m := running(t, q, info)
		check := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		state := func(want bool) {
			t.Helper()
			status, err := monitor.Status(ctx)
			if err != nil || status.Running != want || status.Panicked || status.Detail == "" {
				t.Fatalf("status %+v, %v; want running %v", status, err, want)
			}
		}
		check("resume what runs", monitor.Resume(ctx))
		state(true)
		check("pause", monitor.Pause(ctx))
		await(t, ctx, monitor, vmm.ChangePaused)
		check("pause again", monitor.Pause(ctx))
		state(false)
		check("resume", monitor.Resume(ctx))
		await(t, ctx, monitor, vmm.ChangeResumed)
		state(true)
		check("reset", monitor.Reset(ctx))
		await(t, ctx, monitor, vmm.ChangeReset)

		// QEMU dies: the events end, and calls fail instead of waiting.
		m.cmd.Process.Kill()
		for range monitor.Events() {
		}
		if _, err := monitor.Status(ctx); !errors.Is(err, qmp.ErrDisconnected) {
			t.Errorf("status of a dead QEMU: %v", err)
		}
	})
}

// TestResumeOfWhatIsBeingRestored: QEMU would say yes and do nothing.
func TestResumeOfWhatIsBeingRestored(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, info vmm.Info) {
		ctx := testContext(t)
		r := qemutest.Case{YAML: qemutest.Small}.Request(info)
		r.User = nil
		r.Image = &vmm.Image{Manifest: &memory.Manifest{MachineType: latest(t, info)}}
		p, err := q.Plan(r)
		if err != nil {
			t.Fatal(err)
		}
		m := launch(t, p, resources{files: standIns(t, p)})
		connection, err := q.Connect(ctx, m.dial)
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		var state *monitor.StateError
		if err := connection.Resume(ctx); !errors.As(err, &state) || state.State != "inmigrate" {
			t.Errorf("resume: %v, want a StateError that says inmigrate", err)
		}
	})
}

func latest(t *testing.T, info vmm.Info) string {
	t.Helper()
	machine, found := info.Details.(*qemu.Details).Machine("q35")
	if !found {
		t.Fatal("this QEMU has no q35")
	}
	return machine.Name
}

// TestClockAfterRestore: the machine's clock is the host's, however long the
// machine was saved for.
func TestClockAfterRestore(t *testing.T) {
	if testing.Short() {
		t.Skip("waits three seconds: a clock must have time to be wrong")
	}
	forEachQEMU(t, func(t *testing.T, q *Program, info vmm.Info) {
		t.Parallel()
		ctx := testContext(t)
		r := qemutest.Case{YAML: qemutest.Small, Change: func(r *vmm.PlanRequest) { r.Paused = true }}.Request(info)
		r.User = nil
		p, err := q.Plan(r)
		if err != nil {
			t.Fatal(err)
		}
		source := launch(t, p, resources{files: standIns(t, p)})
		saver := source.shim(ctx)
		state := memoryFile(t, 0)
		migrate(t, ctx, saver, "migrate", state)
		source.quit(ctx, saver)

		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
		}
		if _, err := state.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		manifest, err := q.Manifest(r)
		if err != nil {
			t.Fatal(err)
		}
		r.Image = &vmm.Image{Manifest: &manifest}
		if p, err = q.Plan(r); err != nil {
			t.Fatal(err)
		}
		target := launch(t, p, resources{files: standIns(t, p), memory: source.memory})
		loader := target.shim(ctx)
		migrate(t, ctx, loader, "migrate-incoming", state)

		before := time.Now().UTC().Truncate(time.Second)
		rtc := realTimeClock(t, ctx, loader)
		after := time.Now().UTC()
		// It counts whole seconds, from a moment of its own in each.
		if rtc.Before(before.Add(-time.Second)) || rtc.After(after.Add(time.Second)) {
			t.Errorf("after the restore the machine's clock says %v, and it is %v", rtc, after)
		}
		target.quit(ctx, loader)
	})
}

// migrate moves device state through a file, RAM staying where it is.
func migrate(t *testing.T, ctx context.Context, c *qmp.Client, command string, state interface{ Fd() uintptr }) {
	t.Helper()
	file := dupFile(t, int(state.Fd()))
	defer file.Close()
	events := c.Subscribe("MIGRATION")
	defer events.Close()
	capabilities := []map[string]any{{"capability": "x-ignore-shared", "state": true}, {"capability": "events", "state": true}}
	if err := c.Execute(ctx, "migrate-set-capabilities", map[string]any{"capabilities": capabilities}, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.ExecuteWithFiles(ctx, "getfd", map[string]string{"fdname": "state"}, nil, file); err != nil {
		t.Fatal(err)
	}
	if err := c.Execute(ctx, command, map[string]string{"uri": "fd:state"}, nil); err != nil {
		t.Fatal(err)
	}
	for {
		event, err := events.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(event.Data), "completed") {
			return
		}
		if strings.Contains(string(event.Data), "failed") {
			t.Fatalf("%s: %s", command, event.Data)
		}
	}
}

// realTimeClock reads the MC146818's date: tm_year counts from 1900 and tm_mon
// from 0, as in mktime(3).
func realTimeClock(t *testing.T, ctx context.Context, c *qmp.Client) time.Time {
	t.Helper()
	var tm struct {
		Year   int `json:"tm_year"`
		Month  int `json:"tm_mon"`
		Day    int `json:"tm_mday"`
		Hour   int `json:"tm_hour"`
		Minute int `json:"tm_min"`
		Second int `json:"tm_sec"`
	}
	if err := c.Execute(ctx, "qom-get", map[string]string{"path": "/machine", "property": "rtc-time"}, &tm); err != nil {
		t.Fatal(err)
	}
	return time.Date(1900+tm.Year, time.Month(1+tm.Month), tm.Day, tm.Hour, tm.Minute, tm.Second, 0, time.UTC)
}
