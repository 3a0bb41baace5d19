package instance

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

// full is a VM that runs and has all that a status tells of.
func full() scene {
	s := newScene().change(func(v *kubevirtv1.VirtualMachineInstance) {
		memory := resource.MustParse("2Gi")
		v.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: &memory}
		v.Spec.Domain.Devices.Interfaces = []kubevirtv1.Interface{{Name: "default", Masquerade: &kubevirtv1.InterfaceMasquerade{}}}
		v.Spec.Networks = []kubevirtv1.Network{{Name: "default", Pod: &kubevirtv1.PodNetwork{}}}
		v.Spec.Domain.Devices.Disks = []kubevirtv1.Disk{
			{Name: "root", Disk: &kubevirtv1.DiskTarget{Bus: kubevirtv1.DiskBusVirtio}},
			{Name: "data", Disk: &kubevirtv1.DiskTarget{Bus: kubevirtv1.DiskBusSATA}},
			{Name: "seed", CDROM: &kubevirtv1.CDROMTarget{}},
			{Name: "scratch", Disk: &kubevirtv1.DiskTarget{Bus: kubevirtv1.DiskBusVirtio}},
		}
		v.Spec.Volumes = []kubevirtv1.Volume{
			{Name: "root", ContainerDisk: &kubevirtv1.ContainerDiskSource{Image: "debian"}},
			{Name: "data", DataVolume: &kubevirtv1.DataVolumeSource{Name: "data"}},
			{Name: "seed", CloudInitNoCloud: &kubevirtv1.CloudInitSource{}},
			{Name: "scratch", EmptyDisk: &kubevirtv1.EmptyDiskSource{Capacity: resource.MustParse("1Gi")}},
		}
		v.Status.VirtualMachineRevisionName = "revision-start-vm-x-1"
		v.Status.Conditions = []kubevirtv1.Condition{{Type: kubevirtv1.ConditionDataVolumesReady, Status: metav1.ConditionTrue, Reason: "AllDVsReady"}}
	}).withClaim(claims.ImportSucceeded)
	block := corev1.PersistentVolumeBlock
	s.Claims["data"].Spec = corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &block,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	s.Claims["data"].Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1100Mi")}
	return s.withPod(runsSince(2*time.Second), heard(running), ready, guestSays).recordedAs(kubevirtv1.PhaseScheduling)
}

func ready(p *view.Pod) {
	p.Status.QOSClass, p.Status.PodIP = corev1.PodQOSBurstable, "10.1.0.7"
	p.Status.PodIPs = []corev1.PodIP{{IP: "10.1.0.7"}, {IP: "fd00::7"}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

// guestSays is a guest with an agent, Docker and a lie or two.
func guestSays(p *view.Pod) {
	s := p.Report.VM.Status
	s.Vmm = &nodev1.Vmm{Name: "qemu", Version: "10.0.2"}
	s.Hypervisor, s.HypervisorReason = "emulation", "the node has no /dev/kvm"
	s.EffectiveSpec = &specv1.VirtualMachineSpec{
		MachineType: "pc-q35-10.0", Cpu: &specv1.CPU{Sockets: 2, Cores: 1, Threads: 1}, Memory: &specv1.Memory{Size: "2Gi"},
		Networks: []*specv1.NetworkInterface{{Name: "default", Mac: "02:00:00:00:00:01", Backend: &specv1.NetworkInterface_User{User: &specv1.UserNetwork{Cidr: "10.0.2.0/24"}}}},
	}
	s.Guest = &nodev1.GuestStatus{
		AgentConnected: true,
		Os:             &nodev1.GuestOS{Id: "debian", Name: "Debian GNU/Linux", PrettyName: "Debian GNU/Linux 13", VersionId: "13", KernelRelease: "6.12", Machine: "x86_64", Version: strings.Repeat("x", 1<<16)},
		Interfaces: []*nodev1.GuestInterface{
			{Name: "lo", Mac: "00:00:00:00:00:00", Addresses: []string{"127.0.0.1"}},
			{Name: "enp1s0", Mac: "02:00:00:00:00:01", Addresses: []string{"10.0.2.2", "no address", "fe80::1", "10.1.0.7", "192.168.7.7"}},
			{Name: "docker0", Mac: "02:42:00:00:00:01", Addresses: []string{"172.17.0.1"}},
		},
	}
}

// agentSays is a guest whose agent is connected.
func agentSays(c *nodev1.GuestAgentCondition) func(*view.Pod) {
	return func(p *view.Pod) {
		p.Report.VM.Status.Guest = &nodev1.GuestStatus{AgentConnected: true, GuestAgentCondition: c, FsFreezeStatus: "frozen"}
	}
}

// TestFrozen: the status says it, and in the API's word alone.
func TestFrozen(t *testing.T) {
	s := on(kubevirtv1.PhaseRunning, runsSince(0), heard(running), agentSays(nil), guestSpec)
	if got := statusOf(s.View).FSFreezeStatus; got != "frozen" {
		t.Errorf("%q", got)
	}
	s.View.Pod.Report.VM.Status.Guest.FsFreezeStatus = "anything else"
	if got := statusOf(s.View).FSFreezeStatus; got != "" {
		t.Errorf("%q", got)
	}
}

// guestSpec is what there is to be said of a VM that runs.
func guestSpec(p *view.Pod) { p.Report.VM.Status.EffectiveSpec = new(specv1.VirtualMachineSpec) }

// TestStatusGolden: the whole status of a VM that runs.
func TestStatusGolden(t *testing.T) {
	got, err := yaml.Marshal(statusOf(full().View))
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
	s := full().change(func(v *kubevirtv1.VirtualMachineInstance) {
		controller := true
		v.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachine", UID: "vm-uid", Controller: &controller}}
		v.Annotations = map[string]string{"kubevirt.io/vm-generation": "7"}
		v.Spec.Domain.CPU = &kubevirtv1.CPU{Cores: 2}
		v.Status = kubevirtv1.VirtualMachineInstanceStatus{}
	}).withPod()
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
	s := full()
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
	if next, _ := decide(written(full()).View); action.Is[action.WriteStatus](next) {
		t.Error("the same is written again")
	}
}

// TestConditions: one at a time, in what state.
func TestConditions(t *testing.T) {
	inParts := string(contract.Ending{Message: "starting failed: cpu.model: no avx512", Faults: []contract.Fault{{Field: "cpu.model", Text: "no avx512", UseVMM: "qemu"}}}.Encode())
	crashedInParts := func(p *view.Pod) {
		endedBy(nodev1.EndReason_END_REASON_CRASHED)(p)
		p.Report.VM.Status.Faults = []*nodev1.Fault{{Field: "cpu.model", Text: "no avx512"}}
	}
	waiting := func(reason, message string) func(*view.Pod) {
		return inState(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
	}
	unschedulable := func(p *view.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available"}}
	}
	pausedFor := func(r nodev1.PauseReason) func(*view.Pod) {
		return func(p *view.Pod) {
			heard(nodev1.State_STATE_PAUSED)(p)
			p.Report.VM.Status.PauseReason, p.Report.VM.Status.PauseDisk = r, "root"
		}
	}
	rejected := func(p *view.Pod) {
		failed(p)
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
		in       scene
		status   metav1.ConditionStatus // empty: it is not there
		reason   string
		says     string
	}{
		{"no pod", "Ready", newScene(), "False", "PodNotExists", "no pod yet"},
		{"starting", "Ready", on(scheduling, bound), "False", "GuestNotRunning", "not started yet"},
		{"ready", "Ready", on(isRunning, runsSince(0), heard(running), ready), "True", "", ""},
		{"ready, and stands by", "Ready", on(isRunning, runsSince(0), heard(running), standsBy), "True", "", ""},
		{"no word of the kubelet", "Ready", on(isRunning, runsSince(0), heard(running)), "False", "PodConditionMissing", "kubelet"},
		{"paused", "Ready", on(isRunning, runsSince(0), ready, pausedFor(nodev1.PauseReason_PAUSE_REASON_USER)), "False", "GuestNotRunning", "paused"},
		{"deleted", "Ready", on(isRunning, runsSince(0), heard(running), ready, ending), "False", "PodTerminating", "grace period"},
		{"node lost from sight", "Ready", on(isRunning, runsSince(0), renewed(time.Minute)), "False", "NodeUnresponsive",
			"node node-a has not been heard of since 2026-01-02T03:03:05Z; the VM may still run there; it is started elsewhere when the node is deleted or tainted node.kubernetes.io/out-of-service"},
		{"node not ready", "Ready", on(isRunning, runsSince(0), readiness(corev1.ConditionUnknown)), "False", "NodeUnresponsive", "node node-a is not ready since 2026-01-02T02:04:05Z; "},
		{"ended", "Ready", on(isRunning, exited(1, "it broke")), "False", "GuestNotRunning", "it broke"},
		{"unschedulable", "PodScheduled", on(scheduling, unschedulable), "False", "Unschedulable", "0/1 nodes"},
		{"scheduled", "PodScheduled", on(scheduling, bound, ready), "", "", ""},
		{"no image", "Synchronized", on(scheduling, waiting("ErrImagePull", "not found")), "False", "ErrImagePull", "image vmlet:1 can't be pulled: it is vmlet's own, which the cluster's administrator chooses, and imagePullSecrets in the KubeVirt object; the node says: not found"},
		{"no configuration", "Synchronized", on(scheduling, waiting("CreateContainerConfigError", "no such key")), "False", "CreateContainerConfigError", "container compute does not start: no such key"},
		{"a node's words", "Synchronized", on(scheduling, waiting("CrashLoopBackOff", "vm default/virt-launcher-web-0a1b: /dev/vmlet/gone: no")), "False", "CrashLoopBackOff", "container compute does not start: volume gone: no"},
		{"no agent", "Synchronized", on(kubevirtv1.PhaseScheduled, runsSince(time.Minute), renewed(0)), "False", "AgentUnavailable", "agent on node node-a is not heard"},
		{"rejected, no agent", "Synchronized", on(scheduling, bound, rejected), "False", "AgentUnavailable", "node node-a rejected the VM's pod (no room), and vmlet's agent there is not heard"},
		{"rejected, an agent", "Synchronized", on(scheduling, bound, rejected, heard()), "", "", ""},
		{"not taken up yet", "Synchronized", on(kubevirtv1.PhaseScheduled, runsSince(59*time.Second), heard()), "", "", ""},
		{"not taken up", "Synchronized", on(kubevirtv1.PhaseScheduled, runsSince(time.Minute), heard()), "False", "FailedStart",
			"the VM's container runs since 2026-01-02T03:03:05Z, and vmlet's agent on node node-a has not started its VM: see that agent's log"},
		{"back-off grows", "Synchronized", on(scheduling, waiting("CrashLoopBackOff", "back-off 2m40s restarting failed container=compute 0123456789abcdef")), "False", "CrashLoopBackOff", "does not start: back-off restarting failed container=compute …"},
		{"the agent has it", "Synchronized", on(kubevirtv1.PhaseScheduled, runsSince(time.Minute), heard(nodev1.State_STATE_STARTING)), "", "", ""},
		{"no node", "Ready", on(scheduling, unschedulable), "False", "GuestNotRunning", "the guest has not started yet: no node takes the VM's pod: 0/1 nodes"},
		{"no claim", "Ready", newScene().change(func(v *kubevirtv1.VirtualMachineInstance) {
			v.Spec.Volumes = []kubevirtv1.Volume{{Name: "a", DataVolume: &kubevirtv1.DataVolumeSource{Name: "a"}}}
		}), "False", "PodNotExists", "the VM has no pod yet: there is no PersistentVolumeClaim a"},
		{"in parts", "Synchronized", on(scheduling, exited(1, inParts)), "False", "FailedStart", "spec.domain.cpu.model: no avx512, or set the annotation vmlet.io/vmm: qemu"},
		{"crashed, in parts", "Ready", on(isRunning, exited(1, ""), crashedInParts), "False", "GuestNotRunning", "spec.domain.cpu.model: no avx512"},
		{"in the instance's words", "Synchronized", on(scheduling, exited(1, "boot.kernel.path: no kernel")), "False", "FailedStart", "spec.domain.firmware.kernelBoot.container.kernelPath: no kernel"},
		{"still no image", "Synchronized", on(scheduling, waiting("ImagePullBackOff", "Back-off")), "False", "ImagePullBackOff", "Back-off"},
		{"creating", "Synchronized", on(scheduling, waiting("ContainerCreating", "")), "", "", ""},
		{"never ran", "Synchronized", on(scheduling, exited(1, "image x has no\nsingle disk file")), "False", "FailedStart", "image x has no single disk file"},
		{"crashed later", "Synchronized", on(isRunning, exited(1, "x")), "", "", ""},
		{"not migratable", "LiveMigratable", newScene(), "False", "LiveMigrationNotSupported", "does not migrate"},
		{"by a user", "Paused", on(isRunning, runsSince(0), pausedFor(nodev1.PauseReason_PAUSE_REASON_USER)), "True", "PausedByUser", "resumed"},
		{"by an error", "Paused", on(isRunning, runsSince(0), pausedFor(nodev1.PauseReason_PAUSE_REASON_IO_ERROR)), "True", "PausedIOError", "disk root could not"},
		{"goes on", "Paused", written(on(isRunning, runsSince(0), pausedFor(nodev1.PauseReason_PAUSE_REASON_USER))).withPod(runsSince(0), heard(running)), "", "", ""},
		{"agent away", "Paused", written(on(isRunning, runsSince(0), pausedFor(nodev1.PauseReason_PAUSE_REASON_USER))).withPod(runsSince(0)), "True", "PausedByUser", ""},
		{"ended paused", "Paused", written(on(isRunning, runsSince(0), pausedFor(nodev1.PauseReason_PAUSE_REASON_USER))).withPod(exited(0, "")), "", "", ""},
		{"no helper", "NetworkLimited", withoutHelper(), "True", "UserModeNetwork", "whatever the guest does: network.helper is false"},
		{"user network", "NetworkLimited", full(), "True", "UserModeNetwork", "listed in spec.domain.devices.interfaces"},
		{"emulated", "SoftwareEmulation", full(), "True", "Emulation", "no /dev/kvm"},
		{"guest agent", "AgentConnected", full(), "True", "AgentConnected", ""},
		{"not asked yet", "AgentVersionNotSupported", full(), "", "", ""},
		{"agent that is enough", "AgentVersionNotSupported", on(isRunning, runsSince(0), heard(running), agentSays(&nodev1.GuestAgentCondition{Connected: true, Supported: true})), "", "", ""},
		{"agent that lacks much", "AgentVersionNotSupported", on(isRunning, runsSince(0), heard(running), agentSays(&nodev1.GuestAgentCondition{Connected: true, Reason: "it lacks guest-ping"})), "True", "CommandsMissing", "guest-ping"},
		{"others' stay", "DataVolumesReady", full(), "True", "AllDVsReady", ""},
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

func withoutHelper() scene {
	s := full()
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
		s := full()
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
	build := func(down bool) scene {
		s := full()
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
		return inState(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: reason}})
	}
	s := written(written(written(newScene().withPod()).withPod(of("ErrImagePull"))).withPod(of("ImagePullBackOff"))).withPod(of("ErrImagePull"))
	if next, _ := decide(s.View); next != nil {
		t.Errorf("next %v", next)
	}
}

// TestTransitions: a condition that says the same in other words keeps its time.
func TestTransitions(t *testing.T) {
	s := written(newScene().withPod())
	was := condition.Find(s.Instance.Status.Conditions, kubevirtv1.ConditionReady).LastTransitionTime
	s.View.Now = testTime.Add(time.Hour)
	s = s.withPod(runsSince(0), ending)
	if c := condition.Find(statusOf(s.View).Conditions, kubevirtv1.ConditionReady); c.Reason != condition.ReasonPodTerminating || !c.LastTransitionTime.Equal(&was) {
		t.Errorf("%+v", c)
	}
	s = s.withPod(runsSince(0), heard(running), ready)
	if c := condition.Find(statusOf(s.View).Conditions, kubevirtv1.ConditionReady); c.Status != metav1.ConditionTrue || c.LastTransitionTime.Equal(&was) {
		t.Errorf("%+v", c)
	}
}

// TestGuestIsPaced: a guest whose interfaces change all the time costs a write now and then.
func TestGuestIsPaced(t *testing.T) {
	s := written(full())
	s.Instance.Labels = map[string]string{"kubevirt.io/nodeName": "node-a"}
	s.View.Now = testTime.Add(time.Second)
	s.Pod.Report.VM.Status.Guest.Interfaces[2].Addresses[0] = "172.18.0.1"
	next, again := decide(s.View)
	if action.Is[action.WriteStatus](next) {
		t.Fatal("written a second after the last")
	}
	if due := guestInterval - time.Second; again != due {
		t.Errorf("looked at after %v, want %v", again, due)
	}
	s.View.Now = testTime.Add(guestInterval)
	next, _ = decide(s.View)
	if got, is := next.(action.WriteStatus); !is || got.Status.Interfaces[1].IPAddress != "172.18.0.1" {
		t.Errorf("%v when it is due", next)
	}
}

// TestHostileGuest: what a guest says is bounded.
func TestHostileGuest(t *testing.T) {
	s := full()
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
	vmi := full().Instance
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
