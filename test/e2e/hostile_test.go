package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/guest"
	"google.golang.org/grpc/codes"
)

// What agent and shim may take at most, in KiB, whatever a VMM does to them.
const (
	mostOfShim  = 16 << 10
	mostOfAgent = 64 << 10
)

// hostile is one way in which a VMM misbehaves.
type hostile struct {
	name string
	// start has it misbehave from its start on, later when its guest counts.
	start, later func(h *misled)
	// do is what is asked for then.
	do func(h *misled)
}

// misled is a VM whose VMM misbehaves. A test of its own, as all of a node's run side
// by side.
type misled struct {
	*vm
	shims *peaks
	// well takes back what it was told to do.
	well func()
}

// withHostile has VMMs misbehave on one node; well takes back what a VM's was told. None of them costs agent or
// shims more than a bounded amount of memory, and another VM notices nothing.
func withHostile(t *testing.T, g target, cases []hostile, sideBySide bool, well func(*misled)) {
	f := newFaults(t)
	o := g.options
	o.bin, o.env = buildFaulty(t), f.env()
	n := newNode(t, o)
	shims := &peaks{f: f, of: make(map[int]int)}
	shims.watch("shim.launch.undone")
	other := (&suite{n, g}).boots("other", guest.PVHOptions{})
	t.Run("cases", func(t *testing.T) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				if sideBySide {
					t.Parallel()
				}
				mine := *n
				mine.t = t
				s := &suite{&mine, g}
				spec := s.spec(strings.ReplaceAll(c.name, " ", "-"), guest.PVHOptions{})
				_, err := s.api.CreateVM(s.ctx, &nodev1.CreateVMRequest{Spec: spec})
				s.must(err)
				h := &misled{vm: &vm{node: &mine, name: spec.GetName(), lines: newJournal[string]()}, shims: shims}
				h.well = func() { well(h) }
				h.run(c)
			})
		}
	})
	other.countsOn()
	shims.bounded(t)
	if most := peak(t, n.cmd.Process.Pid); most > mostOfAgent {
		t.Errorf("the agent has taken %d KiB, at most %d are well", most, mostOfAgent)
	}
	if log := len(n.log()); log > 4<<20 {
		t.Errorf("the agent has logged %d bytes", log)
	}
}

// run is a case's life: its VM can be killed and deleted in the end.
func (h *misled) run(c hostile) {
	if c.start != nil {
		c.start(h)
	} else {
		h.must(h.vm.start(false))
		h.is(running)
		h.follow()
		h.count()
		c.later(h)
	}
	if c.do != nil {
		c.do(h)
	}
	if p := h.get().GetStatus().GetProcess(); p != nil {
		h.shims.note(h.t, int(p.GetShimPid()))
	}
	if s := h.get().GetStatus(); len(s.GetMessage()) > 8<<10 {
		h.t.Errorf("its message has %d bytes", len(s.GetMessage()))
	}
	if _, err := h.api.KillVM(h.ctx, &nodev1.KillVMRequest{Name: h.name}); err != nil {
		h.t.Error(err)
	}
	h.logsAreBounded()
	if h.unfollow == nil {
		h.unfollow = func() {}
	}
	h.delete()
	for pid, what := range h.processes() {
		if strings.Contains(what, "/"+h.name+" ") {
			h.t.Errorf("left behind: process %d, %s", pid, what)
		}
	}
}

// logsAreBounded: three files of 1 MiB each.
func (h *misled) logsAreBounded() {
	h.t.Helper()
	var all int64
	logs, err := filepath.Glob(h.path("state", "vms", h.name, "*"))
	h.must(err)
	for _, path := range logs {
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			all += st.Size()
		}
	}
	if all > 10<<20 {
		h.t.Errorf("its folder has %d bytes", all)
	}
}

// refuses sees that an error has a code, says all of these, and is no flood itself.
func (h *misled) refuses(err error, code codes.Code, words ...string) {
	h.t.Helper()
	refused(h.t, err, code, words...)
	if err != nil && len(err.Error()) > 10<<10 {
		h.t.Errorf("the error has %d bytes: %.200s...", len(err.Error()), err)
	}
}

// impatient is the context of somebody who waits for a second.
func (h *misled) impatient() context.Context {
	ctx, cancel := context.WithTimeout(h.ctx, time.Second)
	h.t.Cleanup(cancel)
	return ctx
}

func (h *misled) tryPause(ctx context.Context) error {
	_, err := h.api.PauseVM(ctx, &nodev1.PauseVMRequest{Name: h.name})
	return err
}

// trySave saves it, and sees that there is no image if that fails.
func (h *misled) trySave(ctx context.Context, keep bool) error {
	h.t.Helper()
	dir := filepath.Join(h.t.TempDir(), "image")
	_, err := last(h.api.SaveVM(ctx, &nodev1.SaveVMRequest{Name: h.name, Directory: dir, KeepRunning: keep}))
	if err == nil {
		h.verify(dir)
		return nil
	}
	if _, errStat := os.Stat(dir); !errors.Is(errStat, os.ErrNotExist) && ctx.Err() == nil {
		h.t.Errorf("after a save that failed (%v) looking for the image gives %v", err, errStat)
	}
	return err
}

// givesUp has a save given up when it is under way; the guest goes on.
func (h *misled) givesUp() {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	from, dir := h.now(), filepath.Join(h.t.TempDir(), "image")
	ended := make(chan error, 1)
	go func() {
		_, err := last(h.api.SaveVM(ctx, &nodev1.SaveVMRequest{Name: h.name, Directory: dir}))
		ended <- err
	}()
	h.event(from, "the save begins", func(e *nodev1.Event) bool {
		return e.GetVm() == h.name && e.GetState() == saving && e.GetType() == "state"
	})
	cancel()
	h.refuses(<-ended, codes.Canceled)
	h.becomes(from, running)
}

// remarks waits until its message says all of these.
func (h *misled) remarks(words ...string) {
	h.t.Helper()
	ctx, cancel := h.patient()
	defer cancel()
	for {
		message := h.get().GetStatus().GetMessage()
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(message, w) }) {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			h.t.Fatalf("the message is %q, want it to say %q", message, words)
		}
	}
}

// goesOn: with its VMM in its right mind the guest counts on, and can be saved.
func (h *misled) goesOn() {
	h.t.Helper()
	h.well()
	h.countsOn()
	h.must(h.trySave(h.ctx, true))
	h.is(running)
	h.countsOn()
}

// peaks are what shims have taken of memory at most.
type peaks struct {
	f  *faults
	mu sync.Mutex
	of map[int]int // KiB, by process
}

// watch looks at every process that comes to a step.
func (p *peaks) watch(step string) {
	p.f.at(step, func(pid int) {
		p.watch(step)
		if kib, err := peakOf(pid); err == nil {
			p.mu.Lock()
			p.of[pid] = kib
			p.mu.Unlock()
		}
	})
}

// bounded is about those that were looked at.
func (p *peaks) bounded(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	t.Logf("shims whose launch has failed have taken %v KiB", p.of)
	if len(p.of) == 0 {
		t.Error("no launch has failed")
	}
	for pid, kib := range p.of {
		if kib > mostOfShim {
			t.Errorf("shim %d has taken %d KiB, at most %d are well", pid, kib, mostOfShim)
		}
	}
}

func (p *peaks) note(t *testing.T, pid int) {
	t.Helper()
	if kib := peak(t, pid); kib > mostOfShim {
		t.Errorf("its shim has taken %d KiB, at most %d are well", kib, mostOfShim)
	}
}

func peak(t *testing.T, pid int) int {
	t.Helper()
	kib, err := peakOf(pid)
	if err != nil {
		t.Error(err)
	}
	t.Logf("process %d has taken %d KiB", pid, kib)
	return kib
}

// peakOf is the most memory that a process has had, in KiB: VmHWM of proc(5).
func peakOf(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "\nVmHWM:")
	kib, _, _ := strings.Cut(rest, "kB")
	return strconv.Atoi(strings.TrimSpace(kib))
}
