package instance

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestFrozen: the status says it, and in the API's word alone.
func TestFrozen(t *testing.T) {
	s := scene.On(kubevirtv1.PhaseRunning, scene.RunsSince(0), scene.Heard(scene.Running), scene.AgentSays(nil), scene.GuestSpec)
	if got := statusOf(s.View).FSFreezeStatus; got != "frozen" {
		t.Errorf("%q", got)
	}
	s.View.Pod.Report.VM.Status.Guest.FsFreezeStatus = "anything else"
	if got := statusOf(s.View).FSFreezeStatus; got != "" {
		t.Errorf("%q", got)
	}
}

// TestStatusGolden: the whole status of a VM that runs.
func TestStatusGolden(t *testing.T) {
	got, err := yaml.Marshal(statusOf(scene.Full().View))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "running.yaml")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs (go test -update writes it anew):\n%s", file, got)
	}
}

// TestFirstStatus: what follows from the instance alone is in the status that is written first.
func TestFirstStatus(t *testing.T) {
	s := scene.Full().Change(func(v *kubevirtv1.VirtualMachineInstance) {
		controller := true
		v.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachine", UID: "vm-uid", Controller: &controller}}
		v.Annotations = map[string]string{"kubevirt.io/vm-generation": "7"}
		v.Spec.Domain.CPU = &kubevirtv1.CPU{Cores: 2}
		v.Status = kubevirtv1.VirtualMachineInstanceStatus{}
	}).WithPod()
	got := statusOf(s.View)
	if got.VirtualMachineRevisionName != "revision-start-vm-vm-uid-7" {
		t.Errorf("revision %s", got.VirtualMachineRevisionName)
	}
	if c := got.CurrentCPUTopology; c == nil || *c != (kubevirtv1.CPUTopology{Sockets: 1, Cores: 2, Threads: 1}) {
		t.Errorf("topology %+v", c)
	}
	if m := got.Memory; m == nil || m.GuestAtBoot.String() != "2Gi" || m.GuestCurrent.String() != "2Gi" || m.GuestRequested.String() != "2Gi" {
		t.Errorf("memory %+v", m)
	}
}

// TestVolumePhases: a volume waits for its claim, has it, and is ready in a guest.
func TestVolumePhases(t *testing.T) {
	s := scene.Full()
	s.Claims["data"].Status.Phase = corev1.ClaimPending
	s.Claims["data"].Annotations[preallocation] = "true"
	phases := func(in kubevirtv1.Phase) (all []string) {
		for _, v := range volumeStatuses(s.View, in) {
			all = append(all, v.Name+" "+v.Phase)
		}
		return all
	}
	for _, test := range []struct {
		in    kubevirtv1.Phase
		claim corev1.PersistentVolumeClaimPhase
		want  string
	}{
		{kubevirtv1.PhasePending, corev1.ClaimPending, "root Pending, data Pending, seed Pending, scratch Pending"},
		{kubevirtv1.PhaseScheduled, corev1.ClaimBound, "root Pending, data Bound, seed Pending, scratch Pending"},
		{kubevirtv1.PhaseRunning, corev1.ClaimBound, "root Ready, data Ready, seed Ready, scratch Ready"},
	} {
		s.Claims["data"].Status.Phase = test.claim
		if got := strings.Join(phases(test.in), ", "); got != test.want {
			t.Errorf("%s: %s, want %s", test.in, got, test.want)
		}
	}
	if !volumeStatuses(s.View, kubevirtv1.PhaseRunning)[1].PersistentVolumeClaimInfo.Preallocated {
		t.Error("a claim that CDI has allocated beforehand does not say so")
	}
}

// TestStatusSettles: a status follows from itself: nothing is written twice.
func TestStatusSettles(t *testing.T) {
	if next, _ := decide(written(scene.Full()).View); action.Is[action.WriteStatus](next) {
		t.Error("the same is written again")
	}
}

// TestConditions: one at a time, in what state.
func TestConditions(t *testing.T) {
	inParts := string(contract.Ending{Message: "starting failed: cpu.model: no avx512", Faults: []contract.Fault{{Field: "cpu.model", Text: "no avx512", UseVMM: "qemu"}}}.Encode())
	crashedInParts := func(p *view.Pod) {
		scene.EndedBy(nodev1.EndReason_END_REASON_CRASHED)(p)
		p.Report.VM.Status.Faults = []*nodev1.Fault{{Field: "cpu.model", Text: "no avx512"}}
	}
	waiting := func(reason, message string) func(*view.Pod) {
		return scene.InState(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
	}
	unschedulable := func(p *view.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available"}}
	}
	pausedFor := func(r nodev1.PauseReason) func(*view.Pod) {
		return func(p *view.Pod) {
			scene.Heard(nodev1.State_STATE_PAUSED)(p)
			p.Report.VM.Status.PauseReason, p.Report.VM.Status.PauseDisk = r, "root"
		}
	}
	rejected := func(p *view.Pod) {
		scene.Failed(p)
		p.Status.Reason, p.Status.Message = "OutOfcpu", "no room"
	}
	standsBy := func(p *view.Pod) {
		p.Labels = map[string]string{contract.LabelPoolStandby: "Hibernated"}
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady"}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
		}
	}
	const isRunning, scheduling = kubevirtv1.PhaseRunning, kubevirtv1.PhaseScheduling
	for _, test := range []struct {
		name, of string
		in       scene.Scene
		status   metav1.ConditionStatus // empty: it is not there
		reason   string
		says     string
	}{
		{"no pod", "Ready", scene.New(), "False", "PodNotExists", "no pod yet"},
		{"starting", "Ready", scene.On(scheduling, scene.Bound), "False", "GuestNotRunning", "not started yet"},
		{"ready", "Ready", scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), scene.PodReady), "True", "", ""},
		{"ready, and stands by", "Ready", scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), standsBy), "True", "", ""},
		{"no word of the kubelet", "Ready", scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running)), "False", "PodConditionMissing", "kubelet"},
		{"paused", "Ready", scene.On(isRunning, scene.RunsSince(0), scene.PodReady, pausedFor(nodev1.PauseReason_PAUSE_REASON_USER)), "False", "GuestNotRunning", "paused"},
		{"deleted", "Ready", scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), scene.PodReady, scene.Ending), "False", "PodTerminating", "grace period"},
		{"node lost from sight", "Ready", scene.On(isRunning, scene.RunsSince(0), scene.Renewed(time.Minute)), "False", "NodeUnresponsive",
			"node node-a has not been heard of since 2026-01-02T03:03:05Z; the VM may still run there; it is started elsewhere when the node is deleted or tainted node.kubernetes.io/out-of-service"},
		{"node not ready", "Ready", scene.On(isRunning, scene.RunsSince(0), scene.Readiness(corev1.ConditionUnknown)), "False", "NodeUnresponsive", "node node-a is not ready since 2026-01-02T02:04:05Z; "},
		{"ended", "Ready", scene.On(isRunning, scene.Exited(1, "it broke")), "False", "GuestNotRunning", "it broke"},
		{"unschedulable", "PodScheduled", scene.On(scheduling, unschedulable), "False", "Unschedulable", "0/1 nodes"},
		{"scheduled", "PodScheduled", scene.On(scheduling, scene.Bound, scene.PodReady), "", "", ""},
		{"no image", "Synchronized", scene.On(scheduling, waiting("ErrImagePull", "not found")), "False", "ErrImagePull", "image vmlet:1 can't be pulled: it is vmlet's own, which the cluster's administrator chooses, and imagePullSecrets in the KubeVirt object; the node says: not found"},
		{"no configuration", "Synchronized", scene.On(scheduling, waiting("CreateContainerConfigError", "no such key")), "False", "CreateContainerConfigError", "container compute does not start: no such key"},
		{"a node's words", "Synchronized", scene.On(scheduling, waiting("CrashLoopBackOff", "vm default/virt-launcher-web-0a1b: /dev/vmlet/gone: no")), "False", "CrashLoopBackOff", "container compute does not start: volume gone: no"},
		{"no agent", "Synchronized", scene.On(kubevirtv1.PhaseScheduled, scene.RunsSince(time.Minute), scene.Renewed(0)), "False", "AgentUnavailable", "agent on node node-a is not heard"},
		{"rejected, no agent", "Synchronized", scene.On(scheduling, scene.Bound, rejected), "False", "AgentUnavailable", "node node-a rejected the VM's pod (no room), and vmlet's agent there is not heard"},
		{"rejected, an agent", "Synchronized", scene.On(scheduling, scene.Bound, rejected, scene.Heard()), "", "", ""},
		{"not taken up yet", "Synchronized", scene.On(kubevirtv1.PhaseScheduled, scene.RunsSince(59*time.Second), scene.Heard()), "", "", ""},
		{"not taken up", "Synchronized", scene.On(kubevirtv1.PhaseScheduled, scene.RunsSince(time.Minute), scene.Heard()), "False", "FailedStart",
			"the VM's container runs since 2026-01-02T03:03:05Z, and vmlet's agent on node node-a has not started its VM: see that agent's log"},
		{"back-off grows", "Synchronized", scene.On(scheduling, waiting("CrashLoopBackOff", "back-off 2m40s restarting failed container=compute 0123456789abcdef")), "False", "CrashLoopBackOff", "does not start: back-off restarting failed container=compute …"},
		{"the agent has it", "Synchronized", scene.On(kubevirtv1.PhaseScheduled, scene.RunsSince(time.Minute), scene.Heard(nodev1.State_STATE_STARTING)), "", "", ""},
		{"no node", "Ready", scene.On(scheduling, unschedulable), "False", "GuestNotRunning", "the guest has not started yet: no node takes the VM's pod: 0/1 nodes"},
		{"no claim", "Ready", scene.New().Change(func(v *kubevirtv1.VirtualMachineInstance) {
			v.Spec.Volumes = []kubevirtv1.Volume{{Name: "a", DataVolume: &kubevirtv1.DataVolumeSource{Name: "a"}}}
		}), "False", "PodNotExists", "the VM has no pod yet: there is no PersistentVolumeClaim a"},
		{"in parts", "Synchronized", scene.On(scheduling, scene.Exited(1, inParts)), "False", "FailedStart", "spec.domain.cpu.model: no avx512, or set the annotation vmlet.io/vmm: qemu"},
		{"crashed, in parts", "Ready", scene.On(isRunning, scene.Exited(1, ""), crashedInParts), "False", "GuestNotRunning", "spec.domain.cpu.model: no avx512"},
		{"in the instance's words", "Synchronized", scene.On(scheduling, scene.Exited(1, "boot.kernel.path: no kernel")), "False", "FailedStart", "spec.domain.firmware.kernelBoot.container.kernelPath: no kernel"},
		{"still no image", "Synchronized", scene.On(scheduling, waiting("ImagePullBackOff", "Back-off")), "False", "ImagePullBackOff", "Back-off"},
		{"creating", "Synchronized", scene.On(scheduling, waiting("ContainerCreating", "")), "", "", ""},
		{"never ran", "Synchronized", scene.On(scheduling, scene.Exited(1, "image x has no\nsingle disk file")), "False", "FailedStart", "image x has no single disk file"},
		{"crashed later", "Synchronized", scene.On(isRunning, scene.Exited(1, "x")), "", "", ""},
		{"not migratable", "LiveMigratable", scene.New(), "False", "LiveMigrationNotSupported", "does not migrate"},
		{"by a user", "Paused", scene.On(isRunning, scene.RunsSince(0), pausedFor(nodev1.PauseReason_PAUSE_REASON_USER)), "True", "PausedByUser", "resumed"},
		{"by an error", "Paused", scene.On(isRunning, scene.RunsSince(0), pausedFor(nodev1.PauseReason_PAUSE_REASON_IO_ERROR)), "True", "PausedIOError", "disk root could not"},
		{"goes on", "Paused", written(scene.On(isRunning, scene.RunsSince(0), pausedFor(nodev1.PauseReason_PAUSE_REASON_USER))).WithPod(scene.RunsSince(0), scene.Heard(scene.Running)), "", "", ""},
		{"agent away", "Paused", written(scene.On(isRunning, scene.RunsSince(0), pausedFor(nodev1.PauseReason_PAUSE_REASON_USER))).WithPod(scene.RunsSince(0)), "True", "PausedByUser", ""},
		{"ended paused", "Paused", written(scene.On(isRunning, scene.RunsSince(0), pausedFor(nodev1.PauseReason_PAUSE_REASON_USER))).WithPod(scene.Exited(0, "")), "", "", ""},
		{"no helper", "NetworkLimited", withoutHelper(), "True", "UserModeNetwork", "whatever the guest does: network.helper is false"},
		{"user network", "NetworkLimited", scene.Full(), "True", "UserModeNetwork", "listed in spec.domain.devices.interfaces"},
		{"emulated", "SoftwareEmulation", scene.Full(), "True", "Emulation", "no /dev/kvm"},
		{"guest agent", "AgentConnected", scene.Full(), "True", "AgentConnected", ""},
		{"not asked yet", "AgentVersionNotSupported", scene.Full(), "", "", ""},
		{"agent that is enough", "AgentVersionNotSupported", scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), scene.AgentSays(&nodev1.GuestAgentCondition{Connected: true, Supported: true})), "", "", ""},
		{"agent that lacks much", "AgentVersionNotSupported", scene.On(isRunning, scene.RunsSince(0), scene.Heard(scene.Running), scene.AgentSays(&nodev1.GuestAgentCondition{Connected: true, Reason: "it lacks guest-ping"})), "True", "CommandsMissing", "guest-ping"},
		{"others' stay", "DataVolumesReady", scene.Full(), "True", "AllDVsReady", ""},
	} {
		c := condition.Find(statusOf(test.in.View).Conditions, test.of)
		switch {
		case c == nil && test.status != "":
			t.Errorf("%s: no %s", test.name, test.of)
		case c == nil:
		case c.Status != test.status || c.Reason != test.reason || !strings.Contains(c.Message, test.says):
			t.Errorf("%s: %s is %s, %s, %q; want %s, %s, %q", test.name, test.of, c.Status, c.Reason, c.Message, test.status, test.reason, test.says)
		}
	}
}

func withoutHelper() scene.Scene {
	s := scene.Full()
	s.Pod.Report.VM.Status.NetworkLimited = "network.helper is false"
	return s
}

// TestPodNetworkAddresses: the first address is one at which the guest is reached, whatever
// its agent says; those behind a masquerade are not shown.
func TestPodNetworkAddresses(t *testing.T) {
	for binding, want := range map[string]string{
		"masquerade": "10.1.0.7 fd00::7 fe80::1 192.168.7.7",
		"bridge":     "10.1.0.7 fd00::7 10.0.2.2 fd10:0:2::2 fe80::1 192.168.7.7",
	} {
		s := scene.Full()
		status := s.Pod.Report.VM.Status
		status.EffectiveSpec.Networks[0].Backend = &specv1.NetworkInterface_Pod{Pod: &specv1.PodNetwork{Binding: binding}}
		status.Guest.Interfaces[1].Addresses = []string{"10.0.2.2", "fd10:0:2::2", "fe80::1", "10.1.0.7", "192.168.7.7"}
		got := statusOf(s.View).Interfaces[0]
		if all := strings.Join(got.IPAddresses, " "); all != want || got.IPAddress != "10.1.0.7" {
			t.Errorf("%s: %s, first %s, want %s", binding, all, got.IPAddress, want)
		}
		if c := condition.Find(statusOf(s.View).Conditions, condition.NetworkLimited); c != nil {
			t.Errorf("%s: %+v", binding, c)
		}
	}
}

// TestFirstInterface: the interface on the pod's network comes first wherever it is listed;
// nobody answers at its address while its link is down, and no address behind its masquerade is
// shown of an interface that the guest has made itself.
func TestFirstInterface(t *testing.T) {
	build := func(down bool) scene.Scene {
		s := scene.Full()
		s.Instance.Spec.Networks = append([]kubevirtv1.Network{{Name: "blue", Multus: &kubevirtv1.MultusNetwork{NetworkName: "vlan"}}}, s.Instance.Spec.Networks...)
		s.Instance.Spec.Domain.Devices.Interfaces = append([]kubevirtv1.Interface{{Name: "blue", MACAddress: "02:00:00:00:00:0b"}}, s.Instance.Spec.Domain.Devices.Interfaces...)
		status := s.Pod.Report.VM.Status
		status.EffectiveSpec.Networks[0].Backend = &specv1.NetworkInterface_Pod{Pod: &specv1.PodNetwork{Binding: "masquerade", LinkDown: down}}
		status.EffectiveSpec.Networks = append([]*specv1.NetworkInterface{{Name: "blue", Mac: "02:00:00:00:00:0b", Backend: &specv1.NetworkInterface_Pod{Pod: &specv1.PodNetwork{Binding: "bridge"}}}}, status.EffectiveSpec.Networks...)
		status.Guest.Interfaces[1].Addresses = []string{"10.0.2.2"}
		status.Guest.Interfaces = append(status.Guest.Interfaces, &nodev1.GuestInterface{Name: "br0", Mac: "02:00:00:00:00:0c", Addresses: []string{"10.0.2.2", "192.168.9.9"}})
		return s
	}
	got := statusOf(build(false).View).Interfaces
	if got[0].Name == "blue" || got[0].IPAddress != "10.1.0.7" {
		t.Errorf("the first interface is %s with %s", got[0].Name, got[0].IPAddress)
	}
	if last := got[len(got)-1]; last.InterfaceName != "br0" || last.IPAddress != "192.168.9.9" {
		t.Errorf("the guest's own interface is %+v", last)
	}
	if got := statusOf(build(true).View).Interfaces[0]; strings.Contains(strings.Join(got.IPAddresses, " "), "10.1.0.7") {
		t.Errorf("addresses behind a link that is down: %v", got.IPAddresses)
	}
}

// TestPullIsNoNews: a pull that fails again does not change the condition back.
func TestPullIsNoNews(t *testing.T) {
	of := func(reason string) func(*view.Pod) {
		return scene.InState(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: reason}})
	}
	s := written(written(written(scene.New().WithPod()).WithPod(of("ErrImagePull"))).WithPod(of("ImagePullBackOff"))).WithPod(of("ErrImagePull"))
	if next, _ := decide(s.View); next != nil {
		t.Errorf("next %v", next)
	}
}

// TestTransitions: a condition that says the same in other words keeps its time.
func TestTransitions(t *testing.T) {
	s := written(scene.New().WithPod())
	was := condition.Find(s.Instance.Status.Conditions, kubevirtv1.ConditionReady).LastTransitionTime
	s.View.Now = scene.Time.Add(time.Hour)
	s = s.WithPod(scene.RunsSince(0), scene.Ending)
	if c := condition.Find(statusOf(s.View).Conditions, kubevirtv1.ConditionReady); c.Reason != condition.ReasonPodTerminating || !c.LastTransitionTime.Equal(&was) {
		t.Errorf("%+v", c)
	}
	s = s.WithPod(scene.RunsSince(0), scene.Heard(scene.Running), scene.PodReady)
	if c := condition.Find(statusOf(s.View).Conditions, kubevirtv1.ConditionReady); c.Status != metav1.ConditionTrue || c.LastTransitionTime.Equal(&was) {
		t.Errorf("%+v", c)
	}
}

// TestGuestIsPaced: a guest whose interfaces change all the time costs a write now and then.
func TestGuestIsPaced(t *testing.T) {
	s := written(scene.Full())
	s.Instance.Labels = map[string]string{"kubevirt.io/nodeName": "node-a"}
	s.View.Now = scene.Time.Add(time.Second)
	s.Pod.Report.VM.Status.Guest.Interfaces[2].Addresses[0] = "172.18.0.1"
	next, again := decide(s.View)
	if action.Is[action.WriteStatus](next) {
		t.Fatal("written a second after the last")
	}
	if due := guestInterval - time.Second; again != due {
		t.Errorf("looked at after %v, want %v", again, due)
	}
	s.View.Now = scene.Time.Add(guestInterval)
	next, _ = decide(s.View)
	if got, is := next.(action.WriteStatus); !is || got.Status.Interfaces[1].IPAddress != "172.18.0.1" {
		t.Errorf("%v when it is due", next)
	}
}

// TestHostileGuest: what a guest says is bounded.
func TestHostileGuest(t *testing.T) {
	s := scene.Full()
	g := s.Pod.Report.VM.Status.Guest
	for range 1000 {
		g.Interfaces = append(g.Interfaces, &nodev1.GuestInterface{Name: strings.Repeat("é", 1000), Mac: strings.Repeat("m", 1000)})
		g.Interfaces[1].Addresses = append(g.Interfaces[1].Addresses, "2001:db8::"+string(rune('a'+len(g.Interfaces)%6)), "192.0.2."+string(rune('0'+len(g.Interfaces)%10)))
	}
	g.Os.Name = "\xff" + strings.Repeat("n", 1<<20)
	out, err := yaml.Marshal(statusOf(s.View))
	if err != nil || len(out) > 32<<10 {
		t.Errorf("a status of %d bytes, %v", len(out), err)
	}
}

// TestDiskNames follow the buses, in the order of the list.
func TestDiskNames(t *testing.T) {
	for n, want := range map[int]string{0: "a", 25: "z", 26: "aa", 27: "ab", 701: "zz", 702: "aaa"} {
		if got := letters(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	vmi := scene.Full().Instance
	vmi.Spec.Domain.Devices.Disks[1].Disk.Bus = ""
	if got := diskNames(vmi)["data"]; got != "sda" {
		t.Errorf("without a bus on amd64: %s", got)
	}
	vmi.Annotations = map[string]string{"vmlet.io/vmm": "cloud-hypervisor"}
	if got := diskNames(vmi)["data"]; got != "vdb" {
		t.Errorf("without a bus under cloud-hypervisor: %s", got)
	}
	vmi.Annotations = nil
	vmi.Spec.Architecture = "arm64"
	if got := diskNames(vmi)["data"]; got != "vdb" {
		t.Errorf("without a bus on arm64: %s", got)
	}
}

// TestNewPodOldInstance: a cache that has an instance's pod and not yet the instance does not
// make an orphan of it.
func TestNewPodOldInstance(t *testing.T) {
	for name, change := range map[string]func(*kubevirtv1.VirtualMachineInstance){
		"none":       nil,
		"an earlier": func(v *kubevirtv1.VirtualMachineInstance) { v.UID = types.UID("uid-0000") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.until("it runs", w.in(kubevirtv1.PhaseRunning))
			w.during(2)
			w.cached = w.snapshot()
			old := w.instance()
			w.must(w.cached.Delete(t.Context(), old.DeepCopy()))
			stale := w.instance()
			stale.Finalizers = nil
			if left, err := get(t.Context(), w.cached, vmKey, new(kubevirtv1.VirtualMachineInstance)); err == nil && left != nil {
				left.Finalizers = nil
				w.must(w.cached.Update(t.Context(), left))
			}
			if change != nil {
				change(stale)
				stale.ResourceVersion = ""
				w.must(w.cached.Create(t.Context(), stale))
			}
			before := len(w.writes)
			w.reconcile(w.controller())
			if len(w.writes) > before {
				t.Errorf("writes %v", w.writes[before:])
			}
		})
	}
}
