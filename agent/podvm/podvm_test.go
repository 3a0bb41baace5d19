package podvm

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/pods"
	"github.com/vmlet/vmlet/agent/vm"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// is says whether the pod's VM is listed in a state.
func (a *testAgent) is(s lifecycle.State) func() bool {
	return func() bool {
		m, err := a.Get(context.Background(), podVM)
		return err == nil && m.State() == s && (m.Ended() != nil) == lifecycle.Live(s)
	}
}

// refusal waits until a container's shim has been turned away, and returns why.
func (n *fakeNode) refusal(t *testing.T, p *vmtest.Proc) string {
	t.Helper()
	vmtest.Eventually(t, "the shim is turned away", func() bool { return !p.Alive() })
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if p.Launched != nil && p.Pod.Refusal == "" {
		t.Error("its VMM was started and ended without a word")
	}
	return p.Pod.Refusal
}

func wantText(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%q does not have %q", got, w)
		}
	}
}

// TestPodBlockDevices: claims that are block devices are told by where they are, as the
// agent looks at nothing that a pod names.
func TestPodBlockDevices(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.servePod(t, a)
	n.container(func(p *vmtest.Pod) {
		p.Described.Specification = []byte("disks: [{path: " + contract.DevicesFolder + "/data}, {path: " + contract.DisksFolder + "/root/disk.img}]\n")
	})
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	m, _ := a.Get(t.Context(), podVM)
	h, is := m.Placement().(*placement)
	if !is {
		t.Fatalf("it lives in a %T", m.Placement())
	}
	req := vmm.PlanRequest{Spec: m.Snapshot().GetStatus().GetEffectiveSpec()}
	if err := h.Describe(nil, &req); err != nil {
		t.Fatal(err)
	}
	if want := []string{contract.DevicesFolder + "/data"}; !slices.Equal(req.BlockDevices, want) {
		t.Errorf("block devices %q, want %q", req.BlockDevices, want)
	}
}

func TestPodBoots(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.servePod(t, a)
	proc := n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	m, _ := a.Get(t.Context(), podVM)
	vm := m.Snapshot()
	if vm.Id != podUID || vm.Spec.Name != "web" || vm.Status.Hypervisor != "kvm" || vm.Status.Process.Uid != 1000 ||
		vm.Status.Process.Cgroup != "/kubepods/pod/c0ffee" || vm.Status.Pod.Uid != podUID || vm.Status.Pod.Container != "vm" {
		t.Errorf("%v", vm)
	}
	launched := proc.Pod.Launched
	if launched.Plan.Memory.Path != "/run/vmlet/ram" || launched.Plan.User != nil || *launched.Grace != 28*time.Second {
		t.Errorf("plan %+v, grace %v", launched.Plan, *launched.Grace)
	}
	if want := []string{"/dev/kvm to 1000 in the container of 101"}; !slices.Equal(n.granted, want) {
		t.Errorf("granted: %q", n.granted)
	}
	for _, taken := range w.Holding() {
		if strings.HasPrefix(taken, "user") || strings.HasPrefix(taken, "cgroup") || strings.HasPrefix(taken, "device") {
			t.Errorf("the agent has taken %s for it", taken)
		}
	}
	if _, err := a.Power.Pause(t.Context(), podVM); err != nil || !a.is(lifecycle.Paused)() {
		t.Errorf("pause: %v", err)
	}
	proc.End(&shim.Exit{Reason: shim.ReasonShutdown})
	vmtest.Eventually(t, "it has ended", a.is(lifecycle.Stopped))
}

// TestPodKeepsFirmwareVariables where the pod says that they outlive it.
func TestPodKeepsFirmwareVariables(t *testing.T) {
	for stateDir, want := range map[string]string{"": "/run/vmlet/uefi-vars.fd", "/disks/vm": "/disks/vm/uefi-vars.fd"} {
		w := newWorld(t)
		a, n := w.start(), newFakeNode(w)
		n.servePod(t, a)
		proc := n.container(func(p *vmtest.Pod) {
			p.StateDir = stateDir
			p.Described.Specification = []byte("boot: {firmware: uefi}\n")
		})
		vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
		files := proc.Pod.Launched.Plan.Files
		if len(files) != 1 || files[0].Path != want {
			t.Errorf("with %q: %+v, want %s", stateDir, files, want)
		}
	}
}

// TestPodRefused: each fault reaches the pod's owner, nothing is started, and
// nothing stays open.
func TestPodRefused(t *testing.T) {
	for _, test := range []struct {
		name  string
		node  func(*fakeNode)
		pod   func(*vmtest.Pod)
		wants []string
	}{
		{"a faulty specification", nil, func(p *vmtest.Pod) { p.Described.Specification = []byte("memory: {size: lots}\n") }, []string{"memory.size"}},
		{"a field that isn't", nil, func(p *vmtest.Pod) { p.Described.Specification = []byte("boots: 1\n") }, []string{"/guest/vm.yaml", "boots"}},
		{"no specification", nil, func(p *vmtest.Pod) { p.Described.Specification = nil }, []string{"/guest/vm.yaml: empty"}},
		{"another's volume", func(n *fakeNode) { n.place.Pod = "11111111-2222-4333-8444-555555555555" }, nil, []string{"is a process of pod 1111"}},
		{"no shim of a pod", nil, func(p *vmtest.Pod) { p.None = true }, []string{"no shim of a pod"}},
		{"a relative folder", nil, func(p *vmtest.Pod) { p.RunDir = "run" }, []string{"no shim of a pod"}},
		{"a relative folder for what stays", nil, func(p *vmtest.Pod) { p.StateDir = "state" }, []string{"no shim of a pod"}},
		{"an endless folder for what stays", nil, func(p *vmtest.Pod) { p.StateDir = "/" + strings.Repeat("x", vm.MaxPath) }, []string{"no shim of a pod"}},
		{"an endless folder", nil, func(p *vmtest.Pod) { p.RunDir = "/" + strings.Repeat("x", vm.MaxPath) }, []string{"no shim of a pod"}},
		{"KVM by name, not allocated", func(n *fakeNode) { n.allocated = nil },
			func(p *vmtest.Pod) { p.Described.Specification = []byte(podSpec + "hypervisor: kvm\n") }, []string{"hypervisor", podKVM, "resources.limits"}},
		{"another resource allocated", func(n *fakeNode) { n.allocated = map[string]bool{"devices.kubevirt.io/tun": true} },
			func(p *vmtest.Pod) { p.Described.Specification = []byte(podSpec + "hypervisor: kvm\n") }, []string{podKVM}},
		{"the device can't be given", func(n *fakeNode) { n.grantErr = errors.New("is the node's own file") }, nil, []string{"user 1000", podKVM, "node's own file"}},
		{"no VMM", nil, func(p *vmtest.Pod) { p.Described.VMMs = json.RawMessage("[]") }, []string{"vmm", "not in the pod's image"}},
		{"a VMM that can't be asked", nil, func(p *vmtest.Pod) {
			p.Described.VMMs = json.RawMessage(`[{"name":"qemu","error":"no such file","said":"fake"}]`)
		}, []string{"VMM qemu in the pod's image: no such file"}},
		{"not what a VMM says", nil, func(p *vmtest.Pod) { p.Described.VMMs = json.RawMessage(`[{"name":"qemu","said":{"x":1}}]`) }, []string{"QEMU's description of itself"}},
		{"nothing said of VMMs", nil, func(p *vmtest.Pod) { p.Described.VMMs = nil }, []string{"what the VMMs in the pod's image say"}},
		{"no list of VMMs", nil, func(p *vmtest.Pod) { p.Described.VMMs = json.RawMessage(`{"name":"qemu"}`) }, []string{"what the VMMs in the pod's image say"}},
		{"VMMs without end", nil, func(p *vmtest.Pod) {
			p.Described.VMMs = json.RawMessage(`[{"name":"qemu","said":"fake"}` + strings.Repeat(`,{"name":"qemu"}`, 1<<17) + `]`)
		}, []string{"at most 196608"}},
		{"more in VMMs than their text", nil, func(p *vmtest.Pod) {
			p.Described.VMMs = json.RawMessage(`[{}` + strings.Repeat(`,{}`, maxSayingValues/2) + `]`)
		}, []string{"at most 16384"}},
		{"a specification without end", nil, func(p *vmtest.Pod) {
			p.Described.Specification = []byte(podSpec + strings.Repeat("#", shim.MaxPodSpecification))
		}, []string{"/guest/vm.yaml", "may have a specification of 65536"}},
		{"an endless complaint", nil, func(p *vmtest.Pod) {
			p.Described.VMMs = json.RawMessage(`[{"name":"qemu","error":"` + strings.Repeat("no", 1<<16) + `"}]`)
		}, []string{"nono"}},
		{"a tap", nil, func(p *vmtest.Pod) {
			p.Described.Specification = []byte(podSpec + "networks: [{tap: {bridge: br0}}]\n")
		}, []string{"networks[0].tap"}},
		{"more memory than the volume", nil, func(p *vmtest.Pod) { p.Described.Specification = []byte(podSpec + "memory: {size: 1024Ti}\n") }, []string{"memory.size"}},
		{"a damaged image", nil, func(p *vmtest.Pod) {
			p.Described.Restore = &shim.PodRestore{Directory: "/saved/one", Manifest: []byte("{}")}
		}, []string{"/saved/one/manifest.json"}},
		{"a launch that fails", func(n *fakeNode) { n.w.FailStep("launch", errors.New("QEMU says no")) }, nil, []string{"QEMU says no"}},
		{"a monitor that can't be reached", func(n *fakeNode) { n.w.FailStep("connect", errors.New("deaf monitor")) }, nil, []string{"deaf monitor"}},
		{"a status that can't be had", func(n *fakeNode) { n.w.FailStep("status", errors.New("mute monitor")) }, nil, []string{"mute monitor"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			a, n := w.start(), newFakeNode(w)
			if test.node != nil {
				test.node(n)
			}
			n.servePod(t, a)
			proc := n.container(func(p *vmtest.Pod) {
				if test.pod != nil {
					test.pod(p)
				}
			})
			why := n.refusal(t, proc)
			wantText(t, why, test.wants...)
			if len(why) > fault.MaxMessage {
				t.Errorf("%d bytes of reason", len(why))
			}
			for _, m := range a.All() {
				vmtest.Eventually(t, "nothing runs", func() bool { return m.Ended() == nil })
				if text := m.Snapshot().GetStatus().GetMessage(); len(text) > fault.MaxMessage {
					t.Errorf("%d bytes of message", len(text))
				}
			}
			proc.Mu.Lock()
			defer proc.Mu.Unlock()
			if len(proc.Conns) > 0 {
				t.Errorf("%d connections are open", len(proc.Conns))
			}
		})
	}
}

func TestStaticPodRefused(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	const uid = "0123456789abcdef0123456789abcdef"
	n.place.Pod = uid
	p := n.runner(a)
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	a.Go(func() { p.serve(ctx, pods.Volume{UID: uid, Dir: n.dir}) })
	wantText(t, n.refusal(t, n.container()), "static pod", "DaemonSet")
}

// TestPodWithoutKVM falls back to emulation, and says why.
func TestPodWithoutKVM(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.allocated = nil
	n.servePod(t, a)
	n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	m, _ := a.Get(t.Context(), podVM)
	status := m.Snapshot().GetStatus()
	if status.GetHypervisor() != "emulation" {
		t.Errorf("hypervisor %s", status.GetHypervisor())
	}
	wantText(t, status.GetHypervisorReason(), podKVM, "resources.limits")
	if len(n.granted) > 0 {
		t.Errorf("granted, though nothing is allocated: %q", n.granted)
	}
}

// TestRootPodNeedsNoGrant: the container's root owns the device.
func TestRootPodNeedsNoGrant(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.peer.UID = 0
	n.servePod(t, a)
	n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	if len(n.granted) > 0 {
		t.Errorf("granted: %q", n.granted)
	}
}

// TestPodVolumesGranted: the container's volumes that are block devices, those that the API
// server has.
func TestPodVolumesGranted(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.allocated = nil
	n.pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: contract.DevicesFolder + "/data"}}
	n.servePod(t, a)
	n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	if want := []string{"volume " + contract.DevicesFolder + "/data to 1000 in the container of 101"}; !slices.Equal(n.granted, want) {
		t.Errorf("granted %q, want %q", n.granted, want)
	}
}

// TestPodNotYet: a kubelet or an API server that is away is waited for, and the
// shim's events meanwhile hurry nobody.
func TestPodNotYet(t *testing.T) {
	for _, test := range []struct {
		name string
		away func(*fakeNode, error)
	}{
		{"the kubelet", func(n *fakeNode, err error) { n.allocErr = err }},
		{"the API server", func(n *fakeNode, err error) { n.podErr = err }},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			a, n := w.start(), newFakeNode(w)
			test.away(n, errors.New("connection refused"))
			n.servePod(t, a)
			proc := n.container()
			vmtest.Eventually(t, "it is connected", func() bool { return w.Connections(proc) == 1 })
			n.set(func() { test.away(n, nil) })
			vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
			if proc.Pod.Refusal != "" {
				t.Errorf("it was told %q", proc.Pod.Refusal)
			}
		})
	}
}

// TestIdle: only the shim's end, the time and the context end it.
func TestIdle(t *testing.T) {
	w := newWorld(t)
	proc := newFakeNode(w).container()
	conn := proc.Connect()
	for range cap(conn.Sends) {
		conn.Sends <- shim.Event{Damaged: "again"}
	}
	if err := idle(t.Context(), conn, time.Millisecond); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := idle(ctx, conn, time.Hour); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	conn.HangUp()
	if err := idle(t.Context(), conn, time.Hour); !errors.Is(err, shim.ErrDisconnected) {
		t.Error(err)
	}
}

// TestPodShimGoesWhileWaited: its connection is given up, and the next run of the
// container is served.
func TestPodShimGoesWhileWaited(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.allocErr = errors.New("connection refused")
	n.servePod(t, a)
	first := n.container()
	vmtest.Eventually(t, "it is asked for", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.asked > 0 })
	first.End(nil)
	n.set(func() { n.allocErr = nil })
	second := n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	if w.Connections(first) != 0 || w.Connections(second) != 1 {
		t.Errorf("%d and %d connections", w.Connections(first), w.Connections(second))
	}
}

// TestPodContainerStartsAgain: a new run takes the place of the one that has ended.
func TestPodContainerStartsAgain(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.servePod(t, a)
	first := n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	old, _ := a.Get(t.Context(), podVM)
	first.End(nil)
	second := n.container()
	vmtest.Eventually(t, "it runs again", func() bool {
		m, err := a.Get(t.Context(), podVM)
		return err == nil && m != old && a.is(lifecycle.Running)()
	})
	if old.Ended() != nil || old.State() != lifecycle.Crashed {
		t.Errorf("the first run is %v", old.Snapshot().GetStatus())
	}
	m, _ := a.Get(t.Context(), podVM)
	if got := m.Lease().RunID; got != second.Options.RunID || len(a.All()) != 1 {
		t.Errorf("run %s of %d VMs", got, len(a.All()))
	}
}

// TestPodVMIsListedUntilItsPodIsGone, whatever becomes of its volume.
func TestPodVMIsListedUntilItsPodIsGone(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	unmount := n.servePod(t, a)
	proc := n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	m, _ := a.Get(t.Context(), podVM)
	unmount()
	close(n.gone)                     // an object that was deleted by force, while the VM still runs
	time.Sleep(20 * time.Millisecond) // enough for it to be dropped, if it is
	if !a.is(lifecycle.Running)() {
		t.Error("it is listed no more, and runs")
	}
	proc.End(&shim.Exit{Reason: shim.ReasonKilled})
	vmtest.Eventually(t, "it is forgotten", func() bool { _, err := a.Get(t.Context(), podVM); return err != nil })
	if m.Ended() != nil || m.State() != lifecycle.Stopped {
		t.Errorf("it is forgotten as %v", m.Snapshot().GetStatus())
	}
}

// podOf is the UID of the pod whose VM is listed.
func (a *testAgent) podOf() types.UID {
	m, err := a.Get(context.Background(), podVM)
	if err != nil {
		return ""
	}
	return types.UID(m.Snapshot().GetStatus().GetPod().GetUid())
}

// attempts is how often the kubelet was asked, as with each attempt.
func (n *fakeNode) attempts() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

// TestNamesakeWaits: the VM of another pod of the same name is neither launched nor taken up before
// the end of the first one's, which stays listed.
func TestNamesakeWaits(t *testing.T) {
	for _, test := range []struct {
		name string
		// ran: the namesake's VM was launched by an agent that is gone.
		ran bool
	}{{"to be launched", false}, {"to be taken up", true}} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			first, second := newFakeNode(w), newNamesake(w)
			// The fakes' memory is known by its path alone.
			elsewhere := func(p *vmtest.Pod) { p.RunDir = "/run/elsewhere" }
			if test.ran {
				before := w.start()
				second.servePod(t, before)
				second.container(elsewhere)
				vmtest.Eventually(t, "the namesake runs", before.is(lifecycle.Running))
				before.end()
			}
			a := w.start()
			first.servePod(t, a)
			proc := first.container()
			vmtest.Eventually(t, "the first runs", a.is(lifecycle.Running))
			second.servePod(t, a)
			if !test.ran {
				second.container(elsewhere)
			}
			tried := second.attempts()
			vmtest.Eventually(t, "the namesake is tried again", func() bool { return second.attempts() > tried+1 || a.podOf() != podUID })
			if got := a.podOf(); got != podUID || !a.is(lifecycle.Running)() {
				t.Errorf("the VM of pod %q is listed, want that of %s, running", got, podUID)
			}
			proc.End(&shim.Exit{Reason: shim.ReasonShutdown})
			vmtest.Eventually(t, "the namesake's is listed", func() bool { return a.podOf() == second.pod.UID })
			vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
		})
	}
}

// TestLostVMIsListed: a VM whose shim runs and does not answer is neither forgotten with its pod, nor
// makes way for another of the name, before the shim has ended.
func TestLostVMIsListed(t *testing.T) {
	w := newWorld(t)
	a, n, other := w.start(), newFakeNode(w), newNamesake(w)
	n.standIn = exec.Command("sleep", "infinity")
	if err := n.standIn.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() { n.standIn.Process.Kill(); n.standIn.Wait() })
	t.Cleanup(end)
	unmount := n.servePod(t, a)
	proc := n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	proc.End(nil)
	vmtest.Eventually(t, "its shim is lost", a.is(lifecycle.Crashed))
	unmount()
	close(n.gone)
	other.servePod(t, a)
	other.container()
	vmtest.Eventually(t, "the namesake is tried again", func() bool { return other.attempts() > 1 || a.podOf() != podUID })
	if got := a.podOf(); got != podUID {
		t.Errorf("the VM of pod %q is listed, want that of %s, which may run", got, podUID)
	}
	end()
	vmtest.Eventually(t, "the namesake's is listed", func() bool { return a.podOf() == other.pod.UID })
}

// TestPodEndedIsListed until the pod's object is gone.
func TestPodEndedIsListed(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	unmount := n.servePod(t, a)
	proc := n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	proc.End(&shim.Exit{Reason: shim.ReasonPanicked})
	vmtest.Eventually(t, "it has ended", a.is(lifecycle.Crashed))
	unmount()
	if !a.is(lifecycle.Crashed)() {
		t.Error("it is listed no more")
	}
	close(n.gone)
	vmtest.Eventually(t, "it is forgotten", func() bool { _, err := a.Get(t.Context(), podVM); return err != nil })
}

// TestPodDeaf: a shim that doesn't say what it is for holds up neither the agent's
// end nor the volume's.
func TestPodDeaf(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	unmount := n.servePod(t, a)
	proc := n.container(func(p *vmtest.Pod) { p.Deaf = true })
	vmtest.Eventually(t, "it is asked for", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.asked > 0 })
	unmount()
	if w.Connections(proc) != 0 || !proc.Alive() || proc.Pod.Refusal != "" {
		t.Errorf("%d connections, alive %t, told %q", w.Connections(proc), proc.Alive(), proc.Pod.Refusal)
	}
}

// TestPodLaunching: what an agent that is gone had begun is waited for.
func TestPodLaunching(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.servePod(t, a)
	proc := n.container(func(p *vmtest.Pod) { p.Launching = true })
	vmtest.Eventually(t, "it is looked at again", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.dialled > 1 })
	proc.Mu.Lock()
	proc.Pod.Launching = false
	proc.Mu.Unlock()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	if proc.Pod.Refusal != "" || w.Connections(proc) != 1 {
		t.Errorf("told %q, %d connections", proc.Pod.Refusal, w.Connections(proc))
	}
}

func TestPodDialsAreBounded(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.servePod(t, a)
	dialled := func() int { n.mu.Lock(); defer n.mu.Unlock(); return n.dialled }
	vmtest.Eventually(t, "it is looked at again", func() bool {
		n.announce() // as a pod can all the time
		return dialled() > 1
	})
	for range 500 {
		n.announce()
	}
	if got := dialled(); got > vm.DialBurst+5 {
		t.Errorf("dialled %d times", got)
	}
}

func TestNameFor(t *testing.T) {
	for pod, want := range map[string]string{
		"web": "web", "web.prod": "web-prod", "a..b": "a--b", "": "", "...": "",
		strings.Repeat("x", 62) + ".y": strings.Repeat("x", 62),
		strings.Repeat("x", 300):       strings.Repeat("x", 63),
	} {
		if got := nameFor(pod); got != want {
			t.Errorf("%q: %q, want %q", pod, got, want)
		}
	}
}

// FuzzNameFor: of each name that a pod can have comes one that a guest can have.
func FuzzNameFor(f *testing.F) {
	f.Add("web.prod")
	f.Add("a-." + strings.Repeat("b.", 40) + "c")
	f.Fuzz(func(t *testing.T, pod string) {
		name := nameFor(pod)
		if len(validation.IsDNS1123Subdomain(pod)) == 0 && len(validation.IsDNS1123Label(name)) > 0 {
			t.Errorf("%q: %q", pod, name)
		}
	})
}

// TestPodHasItsImagesVMMs: a pod's VM has what the pod's image has, in the node's
// order, and not what the node has.
func TestPodHasItsImagesVMMs(t *testing.T) {
	for _, c := range []struct{ vmms, text, vmm, says string }{
		{`[{"name":"cloud-hypervisor","said":1},{"name":"qemu","said":"fake"}]`, "", "qemu", "qemu: the node's first choice"},
		{`[{"name":"cloud-hypervisor","said":1},{"name":"qemu","said":"fake"}]`, "vmm: cloud-hypervisor\n", vmtest.OtherName, "cloud-hypervisor was asked for"},
		{`[{"name":"cloud-hypervisor","said":1}]`, "", vmtest.OtherName, "cloud-hypervisor is the only one here"},
		{`[{"name":"qemu","error":"it crashes"},{"name":"cloud-hypervisor","said":1}]`, "", vmtest.OtherName,
			"cloud-hypervisor: qemu can't be used (VMM qemu in the pod's image: it crashes)"},
	} {
		w := newWorld(t)
		w.Others = []vmm.Program{vmtest.NewOther(w.World)}
		a, n := w.start(), newFakeNode(w)
		n.servePod(t, a)
		n.container(func(p *vmtest.Pod) {
			p.Described.VMMs = json.RawMessage(c.vmms)
			p.Described.Specification = []byte(podSpec + c.text)
		})
		vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
		m, _ := a.Get(t.Context(), podVM)
		if st := m.Snapshot().GetStatus(); st.GetVmm().GetName() != c.vmm || st.GetVmmReason() != c.says {
			t.Errorf("%s %s: %s: %q, want %q", c.vmms, c.text, st.GetVmm().GetName(), st.GetVmmReason(), c.says)
		}
	}
}

// TestCallForItsPod: what is meant for a pod's VM is done with no other of its name.
func TestCallForItsPod(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.servePod(t, a)
	n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	m, err := a.Get(vm.ForPod(t.Context(), podUID), podVM)
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Power.Kill(vm.ForPod(t.Context(), "11111111-2222-4333-8444-555555555555"), podVM)
	vmtest.WantCode(t, "a kill that is meant for the pod before", err, codes.NotFound)
	if got := m.State(); !lifecycle.Live(got) {
		t.Errorf("it is %s after a kill that was meant for another", lifecycle.Name(got))
	}
}
