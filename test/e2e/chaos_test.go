package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vmlet/vmlet/internal/faultpoint"
)

// chaos is the variable that has all combinations of faults tried: make chaos.
const chaos = "VMLET_CHAOS"

// fault is a process killed at a step of an operation.
type fault struct {
	op   *operation
	step string
	who  string // empty: the process that comes to the step
	// late: it is the agent, and who waits at the step goes on only when another
	// agent calls.
	late bool
	// missed: there was no such process at that step.
	missed bool
}

func (f fault) String() string {
	who := f.who
	if who == "" {
		who = "itself"
	}
	if f.late {
		who += ", adopted there"
	}
	return fmt.Sprintf("%s at %s, %s", f.op.name, f.step, who)
}

// victim is who is killed.
func (f fault) victim() string {
	switch {
	case f.who != "":
		return f.who
	case strings.HasPrefix(f.step, "agent."):
		return theAgent
	}
	return theShim // which writes images, too
}

// TestFaultWalk kills agents, shims and VMMs at each step of each operation. With
// VMLET_CHAOS all of them at each step, with every VMM; else at each step the process
// that comes to it.
func TestFaultWalk(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	if os.Getenv(chaos) == "" {
		t.Parallel()
	}
	all := targets(t)
	newest := emulated(t).name
	ops := operations()
	known(t, ops)
	programs := buildFaulty(t)
	for _, g := range all {
		var faults func(*testing.T) []fault
		switch {
		case g.crawls && g.firmware: // what is to be found is found under emulation
			continue
		case os.Getenv(chaos) != "":
			faults = func(t *testing.T) []fault { return everyone(newLane(t, g, programs), ops) }
		case g.vmm != "qemu", g.name == newest:
			faults = func(*testing.T) []fault { return eachOnce(ops, g.vmm) }
		default:
			continue
		}
		t.Run(g.name, func(t *testing.T) { walk(t, g, programs, faults(t)) })
	}
}

// emulated is the newest QEMU under emulation.
func emulated(t *testing.T) (newest target) {
	t.Helper()
	for _, g := range ofQEMU(t, []string{"emulation"}) {
		newest = g
	}
	return newest
}

// known sees that each step is in the walk of some operation.
func known(t *testing.T, ops []*operation) {
	t.Helper()
	walked := make(map[string]bool)
	for _, o := range ops {
		for _, steps := range append(slices.Collect(maps.Values(o.driver)), o.steps) {
			for _, step := range steps {
				walked[step] = true
			}
		}
	}
	for _, step := range faultpoint.All() {
		if !walked[step] {
			t.Errorf("no operation's walk comes to %s", step)
		}
		delete(walked, step)
	}
	for step := range walked {
		t.Errorf("%s is in a walk and not among faultpoint.All", step)
	}
}

// eachOnce are the steps that operations are there for: with QEMU all that it can do
// with the tiny guest, with another VMM what QEMU can't, and its own driver's.
func eachOnce(ops []*operation, vmm string) (faults []fault) {
	for _, o := range ops {
		if o.notWith == vmm {
			continue
		}
		steps := o.driver[vmm]
		if vmm == "qemu" || o.notWith == "qemu" {
			steps = slices.Concat(o.steps, steps)
		}
		for _, step := range steps {
			faults = append(faults, fault{op: o, step: step})
		}
	}
	return faults
}

// everyone finds the steps of each operation by doing it, sees that those which it is
// there for are among them, and kills each process at each of them.
func everyone(l *lane, ops []*operation) (faults []fault) {
	for _, o := range ops {
		if o.notWith == l.vmm || o.builtIn && l.driver {
			continue
		}
		steps := l.rehearse(o)
		for _, step := range slices.Concat(o.steps, o.driver[l.vmm]) {
			if !slices.Contains(steps, step) {
				l.t.Errorf("%s does not come to %s: it comes to %v", o.name, step, steps)
			}
		}
		for _, step := range steps {
			for _, who := range []string{theAgent, theShim, theVMM} {
				faults = append(faults, fault{op: o, step: step, who: who})
			}
			if !strings.HasPrefix(step, "agent.") {
				faults = append(faults, fault{op: o, step: step, who: theAgent, late: true})
			}
		}
	}
	return faults
}

// lanes is how many VMs are tried side by side, each with an agent of its own to be
// killed. Most of a walk is waiting.
const lanes = 4

func walk(t *testing.T, g target, programs string, faults []fault) {
	var next, tried, missed atomic.Int64
	for i := range min(lanes, len(faults)) {
		t.Run(fmt.Sprint("lane ", i), func(t *testing.T) {
			t.Parallel()
			l := newLane(t, g, programs)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(faults) {
					return
				}
				held := t.Run(faults[i].String(), func(t *testing.T) {
					l.in(t)
					tried.Add(1)
					if !l.try(faults[i]) {
						missed.Add(1)
					}
				})
				if !held {
					l.abandon()
					l = newLane(t, g, programs) // the next finds nothing of it
				}
			}
		})
	}
	t.Cleanup(func() {
		t.Logf("%d faults tried; at %d of them there was no such process", tried.Load(), missed.Load())
	})
}

// lane is a node with one VM at a time.
type lane struct {
	*suite
	faults *faults
	folder string   // for disks
	before []string // leftovers without VMs
	vms    int
}

func newLane(t *testing.T, g target, programs string) *lane {
	t.Helper()
	f := newFaults(t)
	folder, err := os.MkdirTemp("", "e2e-disks-") // through which VMMs' users get
	if err == nil {
		err = os.Chmod(folder, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	o := g.options
	o.bin, o.env = programs, f.env()
	o.config += fmt.Sprintf("hotplugFolders: [%s]\n", folder)
	l := &lane{suite: &suite{newNode(t, o), g}, faults: f, folder: folder}
	l.before = l.leftovers()
	return l
}

// abandon ends all that a lane has after a failure, so that it is not in the way of
// the others.
func (l *lane) abandon() {
	for _, who := range []string{theAgent, theShim, theVMM} {
		for _, pid := range l.victims(who) {
			if err := slay(pid); err != nil {
				l.t.Log(err)
			}
		}
	}
}

// rehearse does an operation without a fault, and returns its steps.
func (l *lane) rehearse(o *operation) []string {
	w := l.walked(o)
	o.setup(w)
	l.faults.forget()
	err := o.do(w)
	l.reconnect()
	w.settles(fault{op: o})
	steps := l.faults.steps() // also those after its caller has gone
	w.finish(o)
	w.remove()
	if err != nil && !o.fails {
		l.t.Errorf("%s without a fault: %v", o.name, err)
	}
	return steps
}

// try has one fault happen, and sees what becomes of the VM. It reports whether the
// process was there.
func (l *lane) try(f fault) (found bool) {
	l.t.Helper()
	w := l.walked(f.op)
	f.op.setup(w)
	l.faults.forget()
	hit, held := make(chan error, 1), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(held) })
	defer goOn()
	agent := l.cmd.Process.Pid
	l.faults.at(f.step, func(pid int) {
		pids := []int{pid}
		switch {
		case strings.HasPrefix(f.step, "agent.") && f.victim() == theAgent:
		case f.victim() == theAgent:
			pids = []int{agent}
		case f.who != "":
			pids = l.victims(f.who)
		}
		found = len(pids) > 0
		var err error
		for _, pid := range pids {
			if err == nil {
				err = slay(pid)
			}
		}
		hit <- err
		if f.late {
			answered := "agent.adopt.dialled"
			if f.step == "shim.run.ready" { // before that it answers nobody
				answered = "agent.adopt.loaded"
			}
			l.faults.at(answered, func(int) { goOn() })
			<-held
		}
	})
	done := make(chan error, 1)
	ctx, cancel := w.patient()
	defer cancel()
	go func() { done <- f.op.do(w) }()
	select {
	case err := <-hit:
		w.must(err)
	case <-ctx.Done():
		l.t.Fatalf("the step is not come to; there were %v, and %v", l.faults.steps(), l.log())
	}
	err := <-done
	if found && f.victim() == theAgent && f.op.name != "adoption" && f.op.name != "adoption of what has ended" {
		<-l.ended // as its parent sees it
	}
	l.reconnect()
	goOn()
	f.missed = !found
	w.settles(f)
	if slices.Contains([]string{"save", "save kept"}, f.op.name) && err == nil {
		w.must(w.whole())
	}
	w.finish(f.op)
	w.remove()
	return found
}

// reconnect starts another agent in place of one that was killed, and connects to one
// that has been.
func (l *lane) reconnect() {
	l.t.Helper()
	switch {
	case !l.alive():
		if l.conn != nil {
			l.conn.Close()
		}
		l.start()
	case l.conn == nil:
		l.connect()
	}
}
