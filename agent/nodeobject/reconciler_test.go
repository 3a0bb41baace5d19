package nodeobject

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/contract"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// base is what the bench's facts give.
func base(more map[string]string) map[string]string {
	all := map[string]string{
		"node.vmlet.io/vmm": "qemu", "kubevirt.io/realtime": "true", contract.LabelSchedulable: "true", contract.LabelCPUManager: "false",
	}
	maps.Copy(all, more)
	maps.DeleteFunc(all, func(_, v string) bool { return v == "" })
	return all
}

func TestAppliesOnceAndOnlyOurs(t *testing.T) {
	b := newBench(t)
	b.node.set("kubelet", label("kubernetes.io/hostname"), "n1")
	b.look()
	b.wants(t, base(map[string]string{"kubernetes.io/hostname": "n1"}))
	b.wrote(t, 1)
	// Nothing has changed, though the heartbeat would be another by now; others
	// change what is theirs.
	beat := b.node.values[annotation(contract.AnnotationHeartbeat)]
	for i := range 1000 {
		b.clock = b.clock.Add(time.Minute)
		b.node.set("somebody", annotation("example.org/a"), time.Duration(i+1).String())
		b.look()
	}
	b.wrote(t, 0)
	// A fact goes, another comes: its label goes with it, foreign ones stay.
	b.facts = facts(map[string]string{"node.vmlet.io/vmm": "cloud-hypervisor"})
	b.look()
	b.wants(t, base(map[string]string{"kubernetes.io/hostname": "n1", "node.vmlet.io/vmm": "cloud-hypervisor", "kubevirt.io/realtime": ""}))
	b.wrote(t, 1)
	if now := b.node.values[annotation(contract.AnnotationHeartbeat)]; now == beat || now == "" {
		t.Errorf("the heartbeat %q did not go with the change", now)
	}
	if o := b.counters.get(); o.Applies != 2 || o.Labels != 3 || o.LastError != "" || o.NoChanges < 1000 {
		t.Errorf("%+v", o)
	}
}

// What is not known leaves labels as they are, and writes none.
func TestUnknown(t *testing.T) {
	b := newBench(t)
	b.facts.CPUManager = nil
	b.look()
	b.wants(t, base(map[string]string{contract.LabelCPUManager: ""}))
	b.facts = facts(b.facts.Labels)
	b.look()
	b.facts.CPUManager, b.facts.Schedulable = nil, nil
	b.facts.Labels["node.vmlet.io/vmm"] = "another"
	b.look()
	b.wants(t, base(map[string]string{"node.vmlet.io/vmm": "another"}))
}

func TestPutsBack(t *testing.T) {
	b := newBench(t)
	b.look()
	b.node.set("kubectl", label("node.vmlet.io/vmm"), "")
	b.look()
	b.wants(t, base(nil))
	b.wrote(t, 2)
}

func TestConflict(t *testing.T) {
	b := newBench(t)
	b.node.set("somebody", label("node.vmlet.io/vmm"), "theirs")
	b.look()
	b.wants(t, base(map[string]string{"node.vmlet.io/vmm": "theirs"}))
	b.wrote(t, 1)
	for range 10 {
		b.look()
	}
	b.wrote(t, 0)
	if o := b.counters.get(); o.Conflicts != 1 || len(o.Conflicting) != 1 || o.Conflicting[0].Owners[0] != "somebody" || o.Errors != 0 {
		t.Errorf("%+v", o)
	}
	if !slices.Equal(b.told, []string{"VmletConflict"}) {
		t.Errorf("told %v", b.told)
	}
	// It is taken away: now it is ours.
	b.node.set("somebody", label("node.vmlet.io/vmm"), "")
	b.look()
	b.wants(t, base(nil))
	if o := b.counters.get(); len(o.Conflicting) != 0 {
		t.Errorf("%+v", o)
	}
	// Somebody overwrites one of ours: it is theirs, and the others stay ours.
	b.node.set("kubectl-label", label("kubevirt.io/realtime"), "false")
	b.look()
	b.look()
	b.wants(t, base(map[string]string{"kubevirt.io/realtime": "false"}))
	// The same value by somebody else is no conflict; when we drop it, it stays theirs.
	b.node.set("somebody", label("kubevirt.io/sev"), "true")
	b.facts.Labels["kubevirt.io/sev"] = "true"
	b.look()
	delete(b.facts.Labels, "kubevirt.io/sev")
	b.look()
	if b.node.values[label("kubevirt.io/sev")] != "true" {
		t.Error("a label that was another's too is gone")
	}
}

// The API server refuses what didn't look like another's: it is left out until
// something about it changes.
func TestRefusedConflict(t *testing.T) {
	b := newBench(t)
	b.node.set("somebody", label("node.vmlet.io/vmm"), "theirs")
	hidden := b.node.object()
	hidden.ManagedFields = nil
	b.reconciler.node = hidden
	if wait := b.step(t.Context()); wait <= 0 {
		t.Fatal("a refused write is not tried again")
	}
	b.clock = b.clock.Add(time.Minute)
	b.reconciler.node = hidden
	b.step(t.Context())
	b.wants(t, base(map[string]string{"node.vmlet.io/vmm": "theirs"}))
	b.wrote(t, 2)
	b.node.set("somebody", label("node.vmlet.io/vmm"), "")
	b.look()
	b.wants(t, base(nil))
}

// Somebody takes a label away each time that it is put back.
func TestThrashing(t *testing.T) {
	b := newBench(t)
	key := label("node.vmlet.io/vmm")
	fight := func(n *fakeNode) { n.set("other", key, "") }
	b.node.after = fight
	end := b.clock.Add(time.Hour)
	for b.clock.Before(end) {
		if wait := b.look(); wait == 0 {
			wait = time.Second // the watch tells of the other's change
			b.clock = b.clock.Add(wait)
		} else {
			b.clock = b.clock.Add(wait)
		}
		b.node.set("status", annotation("example.org/noise"), b.clock.String()) // counts for nothing
	}
	o := b.counters.get()
	if o.Pauses != 1 || o.Throttled != 3 || !o.Paused {
		t.Fatalf("%+v", o)
	}
	if b.node.writes > 20 {
		t.Errorf("%d writes in an hour", b.node.writes)
	}
	if got := strings.Count(strings.Join(b.told, " "), "VmletPaused"); got != 1 {
		t.Errorf("told of the pause %d times: %v", got, b.told)
	}
	if b.node.values[annotation(contract.AnnotationPaused)] == "" {
		t.Fatal("no annotation")
	}
	if b.node.values[label("kubevirt.io/realtime")] != "true" {
		t.Error("the pause took our other labels away")
	}
	// Paused, it stays as it is, whatever changes, also for the next agent.
	b.node.writes, b.node.after = 0, nil
	b.facts = facts(map[string]string{"node.vmlet.io/vmm": "x"})
	b.look()
	next := newBench(t)
	next.node, next.reconciler.write, next.clock = b.node, b.node.apply, b.clock
	next.look()
	b.wrote(t, 0)
	// The annotation is taken away.
	b.node.set("kubectl", annotation(contract.AnnotationPaused), "")
	b.look()
	b.wants(t, map[string]string{"node.vmlet.io/vmm": "x", contract.LabelSchedulable: "true", contract.LabelCPUManager: "false"})
	if !slices.Contains(b.told, "VmletResumed") || b.counters.get().Paused {
		t.Errorf("%v, %+v", b.told, b.counters.get())
	}
}

func TestSkip(t *testing.T) {
	b := newBench(t)
	b.look()
	b.node.set("kubectl", annotation(contract.AnnotationSkipLabels), "true")
	b.facts = facts(map[string]string{"node.vmlet.io/vmm": "x"})
	no := false
	b.facts.Schedulable = &no
	b.look()
	// As with KubeVirt's: labels stay, whether VMs can be started goes on.
	b.wants(t, base(map[string]string{contract.LabelSchedulable: "false"}))
	b.node.set("kubectl", annotation(contract.AnnotationSkip), "")
	b.node.set("kubectl", annotation(contract.AnnotationSkip), "yes")
	b.facts.Schedulable = facts(nil).Schedulable
	b.node.writes = 0
	b.look()
	b.wrote(t, 0)
	b.node.set("kubectl", annotation(contract.AnnotationSkip), "")
	b.node.set("kubectl", annotation(contract.AnnotationSkipLabels), "")
	b.look()
	b.wants(t, map[string]string{"node.vmlet.io/vmm": "x", contract.LabelSchedulable: "true", contract.LabelCPUManager: "false"})
	for _, reason := range []string{"VmletSkipsLabels", "VmletSkips", "VmletSkipsNoMore", "VmletNotSchedulable", "VmletSchedulable"} {
		if !slices.Contains(b.told, reason) {
			t.Errorf("%s not told: %v", reason, b.told)
		}
	}
	// Beside a virt-handler that is taken over from, KubeVirt's annotation is
	// what keeps that one away, not us.
	b.node.set("kubectl", annotation(contract.AnnotationSkipLabels), "true")
	b.standing = Standing{Known: true, Sure: true, Reason: "its pod runs"}
	b.facts = facts(map[string]string{"node.vmlet.io/vmm": "y"})
	b.look()
	if b.node.values[label("node.vmlet.io/vmm")] != "y" {
		t.Error("taken over, and skipped all the same")
	}
}

func TestStandsAside(t *testing.T) {
	b := newBench(t)
	b.look()
	b.standing = Standing{Known: true, Sure: true, Aside: true, Reason: "its pod runs"}
	// virt-handler writes what it thinks; ours are left, and not put back.
	b.node.set("virt-handler", label("kubevirt.io/realtime"), "")
	b.node.set("virt-handler", label(contract.LabelSchedulable), "false")
	b.facts = facts(map[string]string{"node.vmlet.io/vmm": "x", "kubevirt.io/realtime": "true"})
	b.node.writes = 0
	b.look()
	b.wants(t, base(map[string]string{"node.vmlet.io/vmm": "x", "kubevirt.io/realtime": "", contract.LabelSchedulable: "false"}))
	b.wrote(t, 1) // vmlet's own label
	b.look()
	b.wrote(t, 0)
	if o := b.counters.get(); !o.Aside || o.Conflicts != 0 {
		t.Errorf("%+v", o)
	}
	// It goes, and leaves a label behind that is still its own: that is said.
	b.standing = Standing{Known: true, Sure: true}
	b.look()
	b.wants(t, base(map[string]string{"node.vmlet.io/vmm": "x", contract.LabelSchedulable: "false"}))
	if want := []string{"VmletStandsAside", "VmletTakesUp", "VmletConflict"}; !slices.Equal(b.told, want) {
		t.Errorf("told %v, want %v", b.told, want)
	}
}

// Nothing is written before it is known whether there is a virt-handler.
func TestWaitsForKnowledge(t *testing.T) {
	b := newBench(t)
	b.standing = Standing{Known: true} // as far as devices go
	b.look()
	b.standing, b.facts = Standing{Known: true, Sure: true}, nil
	b.look()
	b.wrote(t, 0)
}

func TestErrors(t *testing.T) {
	b := newBench(t)
	b.node.fail = forbidden()
	var waits []time.Duration
	for range 12 {
		wait := b.look()
		waits = append(waits, wait)
		b.clock = b.clock.Add(wait / 2)
		if again := b.look(); again <= 0 || again > wait { // too early: nothing is written
			t.Fatalf("%v of %v later: %v", wait/2, wait, again)
		}
		b.clock = b.clock.Add(wait)
	}
	b.wrote(t, 12)
	if waits[0] < retryFirst || waits[0] > 2*retryFirst || waits[11] < retryRefused || waits[11] > 2*retryRefused {
		t.Errorf("waited %v", waits)
	}
	if !slices.Equal(b.told, []string{"VmletRefused"}) {
		t.Errorf("told %v", b.told)
	}
	if o := b.counters.get(); o.Errors != 12 || o.LastError == "" || o.Throttled != 0 {
		t.Errorf("%+v", o)
	}
	// The API server says for how long it wants to be left alone.
	b.node.fail = apierrors.NewTooManyRequests("busy", 77)
	b.retry.reset()
	if wait := b.look(); wait != 77*time.Second {
		t.Errorf("waits %v", wait)
	}
	b.node.fail = apierrors.NewServerTimeout(schema.GroupResource{Resource: "nodes"}, "patch", 1)
	for range 12 { // it passes: it is tried again each minute
		b.clock = b.clock.Add(77 * time.Second)
		if wait := b.look(); wait > retryLast {
			t.Errorf("waits %v", wait)
		}
	}
	b.node.fail = nil
	b.clock = b.clock.Add(time.Hour)
	b.look()
	b.wants(t, base(nil))
	if o := b.counters.get(); o.LastError != "" {
		t.Errorf("%+v", o)
	}
}
