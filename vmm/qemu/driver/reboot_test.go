package driver_test

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm/qemu/driver"
)

// monitor is a QEMU in memory, which may be in a bubble of testing/synctest. It has no guest
// agent.
type monitor struct {
	writing sync.Mutex
	out     *json.Encoder

	mu     sync.Mutex
	status string
	// action is what it does when the guest has shut down, and refusals how often it refuses
	// to be told to power off.
	action   string
	refusals int
	heard    []string

	hangUp func() error
}

type command struct {
	Execute   string          `json:"execute"`
	Arguments map[string]any  `json:"arguments"`
	ID        json.RawMessage `json:"id"`
}

// dialMonitor connects a driver to a QEMU.
func dialMonitor(t *testing.T, reset func()) (*monitor, control.Machine) {
	t.Helper()
	near, far := net.Pipe()
	q := &monitor{out: json.NewEncoder(far), hangUp: far.Close, status: "running", action: "poweroff"}
	go q.serve(far)
	m, err := driver.QEMU{}.Connect(t.Context(), control.Link{Reset: reset, Dial: func(context.Context, string) (net.Conn, error) { return near, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return q, m
}

func (q *monitor) serve(conn net.Conn) {
	defer conn.Close()
	q.say(map[string]any{"QMP": map[string]any{
		"version": map[string]any{"qemu": map[string]int{"major": 10, "minor": 0, "micro": 2}, "package": ""}, "capabilities": []string{},
	}})
	for in := json.NewDecoder(conn); ; {
		var c command
		if in.Decode(&c) != nil {
			return
		}
		reply := q.answer(c)
		reply["id"] = c.ID
		q.say(reply)
	}
}

func (q *monitor) say(what map[string]any) {
	q.writing.Lock()
	defer q.writing.Unlock()
	_ = q.out.Encode(what) // fails when the driver has gone
}

func (q *monitor) answer(c command) map[string]any {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.heard = append(q.heard, c.Execute)
	var answer any = struct{}{}
	switch c.Execute {
	case "query-chardev":
		answer = []struct{}{}
	case "query-status":
		answer = map[string]any{"running": q.status == "running", "status": q.status}
	case "set-action":
		action := c.Arguments["shutdown"].(string)
		if action == "poweroff" && q.refusals > 0 {
			q.refusals--
			return map[string]any{"error": map[string]string{"class": "GenericError", "desc": "not now"}}
		}
		q.action = action
	case "cont":
		q.status = "running"
	}
	return map[string]any{"return": answer}
}

func (q *monitor) set(change func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change()
}

// told returns the commands, and what is to be done when the guest has shut down.
func (q *monitor) told() (commands []string, action string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.heard), q.action
}

func (q *monitor) event(name, reason string) {
	q.say(map[string]any{
		"event": name, "data": map[string]any{"guest": true, "reason": reason},
		"timestamp": map[string]int64{"seconds": 1, "microseconds": 1},
	})
}

// press asks the guest to reboot by its power button.
func press(t *testing.T, m control.Machine) {
	t.Helper()
	if err := m.(control.Rebooter).Reboot(t.Context(), true); err != nil {
		t.Fatal(err)
	}
}

// TestRebootIsGivenUp: a guest that does not reboot in its time ends by its next shutdown, also
// if QEMU does not take that at first.
func TestRebootIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, m := dialMonitor(t, nil)
		defer m.Close()
		press(t, m)
		q.set(func() { q.refusals = 2 })
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, action := q.told(); action != "poweroff" {
			t.Errorf("an hour later a shutdown has QEMU %s", action)
		}
		q.event("SHUTDOWN", "guest-shutdown")
		synctest.Wait()
		if told, _ := q.told(); slices.Contains(told, "system_reset") {
			t.Error("it is reset when it has shut down")
		}
	})
}

// TestRebootStillComes: as long as QEMU would stay, paused, the guest is reset.
func TestRebootStillComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, m := dialMonitor(t, nil)
		defer m.Close()
		press(t, m)
		q.set(func() { q.refusals = 1 })
		if err := m.PowerDown(t.Context()); err == nil {
			t.Error("no error of a power button that would reboot")
		}
		q.set(func() { q.status = "shutdown" })
		q.event("SHUTDOWN", "guest-shutdown")
		synctest.Wait()
		told, action := q.told()
		if want := []string{"system_reset", "set-action", "cont"}; !slices.Equal(told[len(told)-3:], want) {
			t.Errorf("QEMU was told %v, want %v in the end", told, want)
		}
		if action != "poweroff" {
			t.Errorf("its next shutdown has QEMU %s", action)
		}
	})
}

// TestShutdownAsRebootEnds: a guest that shuts down just before its time is over leaves no
// QEMU that is paused.
func TestShutdownAsRebootEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, m := dialMonitor(t, nil)
		defer m.Close()
		press(t, m)
		q.set(func() { q.status = "shutdown" }) // of which the event is under way
		time.Sleep(time.Hour)
		synctest.Wait()
		if told, _ := q.told(); !slices.Contains(told, "quit") {
			t.Errorf("QEMU was told %v, want that it is to end", told)
		}
	})
}

// TestReset: the shim hears of the guest's resets.
func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resets := make(chan struct{}, 8)
		q, m := dialMonitor(t, func() { resets <- struct{}{} })
		defer m.Close()
		q.event("RESET", "guest-reset")
		synctest.Wait()
		if len(resets) != 1 {
			t.Errorf("%d resets, want one", len(resets))
		}
	})
}
