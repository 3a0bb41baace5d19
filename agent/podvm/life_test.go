package podvm

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/memory"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestPodAdopted: a new agent takes up what runs, and does not start it anew.
func TestPodAdopted(t *testing.T) {
	w := newWorld(t)
	n := newFakeNode(w)
	first := w.start()
	n.servePod(t, first)
	proc := n.container()
	vmtest.Eventually(t, "it runs", first.is(lifecycle.Running))
	before, _ := first.Get(t.Context(), podVM)
	first.end()
	if !proc.Alive() || w.Connections(proc) != 0 {
		t.Fatalf("alive %t, %d connections after the agent's end", proc.Alive(), w.Connections(proc))
	}

	second := w.start()
	n.servePod(t, second)
	vmtest.Eventually(t, "it is adopted", second.is(lifecycle.Running))
	after, _ := second.Get(t.Context(), podVM)
	was, is := before.Snapshot(), after.Snapshot()
	if is.Id != was.Id || is.Status.Hypervisor != was.Status.Hypervisor || !is.Status.StartedAt.AsTime().Equal(was.Status.StartedAt.AsTime()) ||
		is.Status.EffectiveSpec.GetName() != "web" || is.Status.Process.Uid != 1000 || is.Status.Process.Cgroup != was.Status.Process.Cgroup {
		t.Errorf("%v, was %v", is, was)
	}
	launches := 0
	for _, step := range w.Taken() {
		if step == "launch" {
			launches++
		}
	}
	if launches != 1 {
		t.Errorf("%d launches", launches)
	}
	proc.End(&shim.Exit{Reason: shim.ReasonShutdown})
	vmtest.Eventually(t, "its end is seen", second.is(lifecycle.Stopped))
}

// TestPodStartsPaused: a pod that asks for it has a guest that stands still until somebody
// resumes it.
func TestPodStartsPaused(t *testing.T) {
	w := newWorld(t)
	n := newFakeNode(w)
	a := w.start()
	n.servePod(t, a)
	proc := n.container(func(p *vmtest.Pod) { p.Described.Paused = true })
	vmtest.Eventually(t, "it is paused", a.is(lifecycle.Paused))
	if !proc.Pod.Launched.Plan.Paused {
		t.Error("the plan lets the guest run")
	}
	if _, err := a.Power.Resume(t.Context(), podVM, false); err != nil {
		t.Fatal(err)
	}
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
}

// TestPodHostileKeep: what a shim says to have kept is the pod's word. Nothing of it
// names anything of the node's, and a VM that runs is never ended because of it.
func TestPodHostileKeep(t *testing.T) {
	lie := func(change func(*place.Lease)) func(json.RawMessage) json.RawMessage {
		return func(kept json.RawMessage) json.RawMessage {
			var l place.Lease
			if err := json.Unmarshal(kept, &l); err != nil {
				t.Error(err)
			}
			change(&l)
			b, err := json.Marshal(l)
			if err != nil {
				t.Error(err)
			}
			return b
		}
	}
	for _, test := range []struct {
		name    string
		change  func(json.RawMessage) json.RawMessage
		adopted bool
	}{
		{"the node's", lie(func(l *place.Lease) {
			l.UID, l.RunID, l.Device, l.Memory = 0, "../..", "/dev/sda", "/etc/passwd"
			l.Cgroup.Paths = map[string]string{"": "/system.slice"}
		}), true},
		{"another VMM", lie(func(l *place.Lease) { l.VMM = "../../bin/sh" }), true},
		{"none", func(json.RawMessage) json.RawMessage { return nil }, false},
		{"no JSON", func(json.RawMessage) json.RawMessage { return json.RawMessage("x") }, false},
		{"null", func(json.RawMessage) json.RawMessage { return json.RawMessage("null") }, false},
		{"empty", func(json.RawMessage) json.RawMessage { return json.RawMessage("{}") }, false},
		{"another hypervisor", lie(func(l *place.Lease) { l.Manifest.Accelerator = "abacus" }), false},
		{"an endless version", lie(func(l *place.Lease) { l.Manifest.VMM.Version = strings.Repeat("9", 1<<20) }), false},
		{"disks and sums", lie(func(l *place.Lease) {
			l.Manifest.Disks, l.Manifest.Chunks = make([]memory.DiskIdentity, 1), make(memory.ChunkSums, 1)
		}), true},
		{"countless values", lie(func(l *place.Lease) { l.Manifest.Disks = make([]memory.DiskIdentity, maxKeepValues/7) }), false},
		{"a long list", lie(func(l *place.Lease) { l.Manifest.CPU.Features = make([]string, maxParts+1) }), false},
		{"no id", lie(func(l *place.Lease) { l.Manifest.PlanExtras = json.RawMessage(`{"id":"../../x"}`) }), false},
		{"no specification", lie(func(l *place.Lease) { l.Manifest.Specification = nil }), false},
		{"a faulty specification", lie(func(l *place.Lease) { l.Manifest.Specification = json.RawMessage(`{"name":"UPPER/../CASE"}`) }), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			n := newFakeNode(w)
			first := w.start()
			n.servePod(t, first)
			proc := n.container()
			vmtest.Eventually(t, "it runs", first.is(lifecycle.Running))
			first.end()
			proc.Pod.Keep = test.change(proc.Pod.Launched.Keep)
			if proc.Pod.Keep == nil {
				proc.Pod.Launched.Keep = nil
			}

			second := w.start()
			p := n.runner(second)
			h := &placement{runner: p, dir: n.dir, pod: n.pod, container: &n.pod.Spec.Containers[0], place: n.place, peer: n.peer, conn: proc.Connect()}
			d, err := p.describe(t.Context(), h)
			if err != nil {
				t.Fatal(err)
			}
			m, err := p.adopt(t.Context(), h, h.conn.Welcome(), d)
			if (err == nil) != test.adopted {
				t.Fatalf("adopted: %v", err)
			}
			if !proc.Alive() {
				t.Error("it was ended")
			}
			if err != nil {
				if len(second.All()) > 0 {
					t.Error("it is listed")
				}
				return
			}
			l := m.Lease()
			if l.UID != 1000 || l.Device != "" || l.Memory != "" || l.RunID != proc.Options.RunID || l.Cgroup.Paths[""] != "/kubepods/pod/c0ffee" || l.Cgroup.Version != 2 {
				t.Errorf("taken from it: %+v", l)
			}
			if len(l.Manifest.Disks)+len(l.Manifest.Chunks) > 0 {
				t.Errorf("kept of it: %+v", l.Manifest)
			}
		})
	}
}

// TestPodNotAdoptedRunsOn: an agent that can't take a VM up leaves it alone.
func TestPodNotAdoptedRunsOn(t *testing.T) {
	w := newWorld(t)
	n := newFakeNode(w)
	first := w.start()
	n.servePod(t, first)
	proc := n.container()
	vmtest.Eventually(t, "it runs", first.is(lifecycle.Running))
	first.end()
	good := proc.Pod.Launched.Keep
	proc.Mu.Lock()
	proc.Pod.Keep = json.RawMessage("{}")
	proc.Mu.Unlock()
	second := w.start()
	unmount := n.servePod(t, second)
	vmtest.Eventually(t, "it is looked at", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.asked > 1 })
	if !proc.Alive() || proc.Pod.Refusal != "" {
		t.Errorf("alive %t, told %q", proc.Alive(), proc.Pod.Refusal)
	}
	proc.Mu.Lock()
	proc.Pod.Keep = good
	proc.Mu.Unlock()
	vmtest.Eventually(t, "it is taken up", second.is(lifecycle.Running))
	unmount()
}

// TestPodAgentEndsInTheMiddle of a start: what runs by then is the next agent's, and
// what doesn't is started by it.
func TestPodAgentEndsInTheMiddle(t *testing.T) {
	for _, step := range []string{"info", "plan", "launch", "connect", "status"} {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t)
			n := newFakeNode(w)
			first := w.start()
			w.Hooks[step] = func() {
				go first.end()
				<-first.ctx.Done()
			}
			n.servePod(t, first)
			proc := n.container()
			vmtest.Eventually(t, "the agent ends", func() bool { return first.ctx.Err() != nil })
			first.end()
			if !proc.Alive() || proc.Pod.Refusal != "" {
				t.Fatalf("alive %t, told %q", proc.Alive(), proc.Pod.Refusal)
			}
			if w.Connections(proc) != 0 {
				t.Errorf("%d connections are open", w.Connections(proc))
			}
			second := w.start()
			n.servePod(t, second)
			vmtest.Eventually(t, "it runs", second.is(lifecycle.Running))
		})
	}
}

// TestPodVolumeGoesInTheMiddle of a start: nothing is left running.
func TestPodVolumeGoesInTheMiddle(t *testing.T) {
	for _, step := range []string{"info", "launch", "status"} {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t)
			a, n := w.start(), newFakeNode(w)
			unmounted := make(chan struct{})
			var unmount func()
			ready := make(chan struct{})
			w.Hooks[step] = func() {
				<-ready
				go func() {
					unmount()
					close(unmounted)
				}()
				<-n.servedUntil
			}
			unmount = n.servePod(t, a)
			close(ready)
			proc := n.container()
			vmtest.Eventually(t, "the volume is left", func() bool {
				select {
				case <-unmounted:
					return true
				default:
					return false
				}
			})
			proc.Mu.Lock()
			launched := proc.Launched != nil
			proc.Mu.Unlock()
			if launched && proc.Alive() {
				t.Error("its VMM runs on")
			}
			if w.Connections(proc) != 0 {
				t.Errorf("%d connections are open", w.Connections(proc))
			}
		})
	}
}

// TestPodOperations: what a pod's VM can't have says what to do instead.
func TestPodOperations(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.servePod(t, a)
	n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	_, err := a.Manager.Start(t.Context(), podVM, vm.StartOptions{}, nil)
	vmtest.WantCode(t, "start", err, codes.FailedPrecondition)
	wantText(t, err.Error(), "kubectl delete pod -n default web")
	vmtest.WantCode(t, "delete", a.Delete(t.Context(), podVM), codes.FailedPrecondition)
	if _, err := a.Power.Kill(t.Context(), podVM); err != nil {
		t.Error(err)
	}
	vmtest.Eventually(t, "it has ended", a.is(lifecycle.Stopped))
	vmtest.WantCode(t, "delete of one that has ended", a.Delete(t.Context(), podVM), codes.FailedPrecondition)
	_, err = a.Manager.Start(t.Context(), podVM, vm.StartOptions{}, nil)
	vmtest.WantCode(t, "start of one that has ended", err, codes.FailedPrecondition)
}

func TestPodSave(t *testing.T) {
	always, onFailure, never := corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	outside := t.TempDir()
	for _, test := range []struct {
		name    string
		policy  corev1.RestartPolicy
		options place.SaveOptions
		runDir  string
		want    string // of the error; empty: it is saved
	}{
		{"Never", never, place.SaveOptions{Directory: filepath.Join(outside, "never")}, "", ""},
		{"OnFailure", onFailure, place.SaveOptions{Directory: filepath.Join(outside, "onfailure")}, "", ""},
		{"Always", always, place.SaveOptions{Directory: filepath.Join(outside, "always")}, "", "restartPolicy is Always"},
		{"Always, kept running", always, place.SaveOptions{Directory: filepath.Join(outside, "kept"), KeepRunning: true}, "", ""},
		{"in the volume", never, place.SaveOptions{Directory: "/run/vmlet/one"}, "", "gone with the pod"},
		{"the volume itself", never, place.SaveOptions{Directory: "/run/vmlet/"}, "", "gone with the pod"},
		{"in the volume by a detour", never, place.SaveOptions{Directory: "/saved/../run/vmlet/one"}, "", "gone with the pod"},
		{"in a volume with a slash", never, place.SaveOptions{Directory: "/run/vmlet/one"}, "/run/vmlet/", "gone with the pod"},
		{"relative", never, place.SaveOptions{Directory: "saved/one"}, "", "absolute"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			a, n := w.start(), newFakeNode(w)
			n.pod.Spec.RestartPolicy = test.policy
			n.servePod(t, a)
			proc := n.container(func(p *vmtest.Pod) {
				if test.runDir != "" {
					p.RunDir = test.runDir
				}
			})
			vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
			_, _, err := a.Saver.Save(t.Context(), podVM, test.options, nil)
			switch {
			case test.want != "":
				if err == nil {
					t.Fatal("it is saved")
				}
				wantText(t, err.Error(), test.want)
				if !a.is(lifecycle.Running)() {
					t.Error("it does not run on")
				}
			case err != nil:
				t.Fatal(err)
			case proc.Alive() != test.options.KeepRunning:
				t.Errorf("it runs on: %t", proc.Alive())
			}
		})
	}
}

// TestPodSavedAndKilled: whether an image is there can't be seen from the node, and
// one of the node's own in a folder of that name is not taken for it.
func TestPodSavedAndKilled(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.servePod(t, a)
	n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	w.FailStep("after the image", errors.New("the shim was killed"))
	if _, _, err := a.Saver.Save(t.Context(), podVM, place.SaveOptions{Directory: filepath.Join(t.TempDir(), "one")}, nil); err == nil {
		t.Error("it was saved")
	}
	vmtest.Eventually(t, "it has ended", a.is(lifecycle.Crashed))
}

// TestPodRestores what another pod has saved, as its VM and under this pod's name.
func TestPodRestores(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.servePod(t, a)
	n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	dir := filepath.Join(t.TempDir(), "one")
	if _, _, err := a.Saver.Save(t.Context(), podVM, place.SaveOptions{Directory: dir}, nil); err != nil {
		t.Fatal(err)
	}
	vmtest.Eventually(t, "it is saved", a.is(lifecycle.Saved))
	image, err := memory.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	manifest, err := os.ReadFile(filepath.Join(dir, memory.ManifestName))
	if err != nil {
		t.Fatal(err)
	}
	restored := n.container(func(p *vmtest.Pod) {
		p.Described.Specification = nil
		p.Described.Restore = &shim.PodRestore{Directory: "/saved/one", Manifest: manifest}
	})
	vmtest.Eventually(t, "it runs again, or never", func() bool { return a.is(lifecycle.Running)() || !restored.Alive() })
	if !restored.Alive() {
		t.Fatal(restored.Pod.Refusal)
	}
	if r := restored.Pod.Launched.Plan.Restore; r == nil || r.Directory != "/saved/one" || r.ImageID != image.Manifest().ID {
		t.Errorf("restored from %+v", r)
	}
	m, _ := a.Get(t.Context(), podVM)
	if vm := m.Snapshot(); vm.Id != podUID || vm.Spec.Name != "web" {
		t.Errorf("%v", vm)
	}
}

// TestPodSavesLazily: a VMM that writes all memory to the pod's volume first would be
// killed for that where the container may not have as much; so it is not tried, by a
// later agent neither.
func TestPodSavesLazily(t *testing.T) {
	limited := func(memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	}
	for _, test := range []struct {
		name         string
		lazy, folder bool
		limits       corev1.ResourceList
		refused      bool
	}{
		{"too little", true, true, limited("64Mi"), true},
		{"enough", true, true, limited("64Gi"), false},
		{"as much as there is", true, true, nil, false},
		{"eager", false, true, limited("64Mi"), false},
		{"into the image at once", true, false, limited("64Mi"), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.VMM.Lazy, w.VMM.Folder = true, test.folder
			a, n := w.start(), newFakeNode(w)
			n.pod.Spec.Containers[0].Resources.Limits = test.limits
			n.servePod(t, a)
			manifest := savedPod(t, a, n)
			n.container(func(p *vmtest.Pod) {
				p.Described.Specification = nil
				p.Described.Restore = &shim.PodRestore{Directory: "/saved/one", Manifest: manifest, Lazy: test.lazy}
			})
			vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
			a.end()
			a = w.start()
			n.servePod(t, a)
			vmtest.Eventually(t, "it is adopted", a.is(lifecycle.Running))
			_, _, err := a.Saver.Save(t.Context(), podVM, place.SaveOptions{Directory: filepath.Join(t.TempDir(), "two")}, nil)
			if (err != nil) != test.refused {
				t.Fatalf("saving it: %v", err)
			}
			if test.refused {
				wantText(t, err.Error(), "restored lazily")
				wantText(t, err.Error(), "memory limit would have to be")
			}
		})
	}
}

// savedPod runs and saves a pod's VM, and returns the image's manifest.
func savedPod(t *testing.T, a *testAgent, n *fakeNode) []byte {
	t.Helper()
	n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	dir := filepath.Join(t.TempDir(), "one")
	if _, _, err := a.Saver.Save(t.Context(), podVM, place.SaveOptions{Directory: dir}, nil); err != nil {
		t.Fatal(err)
	}
	vmtest.Eventually(t, "it is saved", a.is(lifecycle.Saved))
	manifest, err := os.ReadFile(filepath.Join(dir, memory.ManifestName))
	if err != nil {
		t.Fatal(err)
	}
	return manifest
}

// TestUsedImageIsFollowedAgain: a guest that has gone on from an image that is used up with it is not ended because its
// agent then fails, but adopted, and told the time. One whose image can be restored again is taken back.
func TestUsedImageIsFollowedAgain(t *testing.T) {
	for _, once := range []bool{true, false} {
		for _, step := range []string{"connect", "status"} {
			t.Run(fmt.Sprintf("%s, once %v", step, once), func(t *testing.T) {
				w := newWorld(t)
				a, n := w.start(), newFakeNode(w)
				n.servePod(t, a)
				manifest := savedPod(t, a, n)
				steps := len(w.Taken())
				w.Hooks[step] = func() { // it fails once
					w.FailStep(step, errors.New("out of descriptors"))
					w.Mu.Lock()
					defer w.Mu.Unlock()
					w.Hooks[step] = func() { w.FailStep(step, nil) }
				}
				restored := n.container(func(p *vmtest.Pod) {
					p.Described.Specification = nil
					p.Described.Restore = &shim.PodRestore{Directory: "/claim/one", Manifest: manifest, Once: once}
				})
				vmtest.Eventually(t, "it has failed", func() bool { return slices.Contains(w.Taken()[steps:], step) })
				vmtest.Eventually(t, "it runs, or never", func() bool { return a.is(lifecycle.Running)() || !restored.Alive() })
				if restored.Alive() != once {
					t.Fatalf("it runs: %v, refused with %q", restored.Alive(), restored.Pod.Refusal)
				}
				if once {
					vmtest.Eventually(t, "it is told the time", func() bool { return slices.Contains(w.Taken()[steps:], "guest time") })
				}
			})
		}
	}
}

// TestPodGrace: the guest has what its specification says, also nothing, but no more than
// what the pod has, less what the shim needs itself.
func TestPodGrace(t *testing.T) {
	for _, test := range []struct {
		pod  *int64
		own  time.Duration
		want time.Duration
	}{
		{new(int64(30)), 30 * time.Second, 28 * time.Second},
		{new(int64(31)), 30 * time.Second, 29 * time.Second},
		{new(int64(32)), 30 * time.Second, 30 * time.Second},
		{new(int64(3600)), 30 * time.Second, 30 * time.Second},
		{new(int64(0)), 30 * time.Second, time.Second},
		{new(int64(-1)), 30 * time.Second, time.Second},
		{new(int64(9999999999)), 30 * time.Second, 30 * time.Second},
		{new(int64(1<<63 - 1)), 30 * time.Second, 30 * time.Second},
		{new(int64(-1 << 63)), 30 * time.Second, time.Second},
		{nil, 30 * time.Second, 30 * time.Second},
		{new(int64(30)), 1500 * time.Millisecond, 1500 * time.Millisecond},
		{new(int64(210)), 180 * time.Second, 180 * time.Second},
		{new(int64(30)), 0, 0},
		{new(int64(0)), 0, 0},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: test.pod}}
		h := &placement{pod: pod}
		r, err := h.Request(&place.Choice{Lease: new(place.Lease), Spec: &specv1.VirtualMachineSpec{StopGracePeriod: durationpb.New(test.own)}})
		if err != nil || r.Grace == nil || *r.Grace != test.want {
			t.Errorf("%v of a pod with %v: %v, %v; want %v", test.own, test.pod, r.Grace, err, test.want)
		}
	}
}

// TestPodMessagesAreBounded: what a pod's shim says is kept in memory, and shown to
// everybody who lists VMs.
func TestPodMessagesAreBounded(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.servePod(t, a)
	proc := n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	long := strings.Repeat("x", 1<<20)
	proc.Mu.Lock()
	conn := proc.Conns[0]
	proc.Mu.Unlock()
	conn.Sends <- shim.Event{Damaged: long}
	conn.Sends <- shim.Event{Damaged: long}
	proc.End(&shim.Exit{Reason: shim.ReasonSaved, ImageDirectory: long, ImageID: long, LastWords: long})
	vmtest.Eventually(t, "it has ended", a.is(lifecycle.Saved))
	m, _ := a.Get(t.Context(), podVM)
	status := m.Snapshot().GetStatus()
	if len(status.GetMessage()) > fault.MaxMessage || len(status.GetImage().GetPath()) > vm.MaxPath || len(status.GetImage().GetImageId()) > vm.MaxVersion {
		t.Errorf("%d, %d and %d bytes", len(status.GetMessage()), len(status.GetImage().GetPath()), len(status.GetImage().GetImageId()))
	}
	history := a.Subscribe(podVM, 100, 0)
	defer history.Close()
	damaged := 0
	for _, item := range history.Take() {
		if len(item.Event.GetMessage()) > fault.MaxMessage {
			t.Errorf("event %s has %d bytes", item.Event.GetType(), len(item.Event.GetMessage()))
		}
		if item.Event.GetType() == "image-damaged" {
			damaged++
		}
	}
	if damaged != 1 {
		t.Errorf("that the image is damaged is told %d times", damaged)
	}
}
