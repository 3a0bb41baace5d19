package scene

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

func Bound(p *view.Pod) { p.Spec.NodeName = "node-a" }

func Ending(p *view.Pod) { p.DeletionTimestamp = &metav1.Time{Time: Time} }

func Free(p *view.Pod) { p.Finalizers = nil }

func Gone(p *view.Pod) {
	p.Gone, p.Pod = true, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID}}
}

func Failed(p *view.Pod) { p.Status.Phase = corev1.PodFailed }

func Promised(p *view.Pod) { p.Promised = true }

func Asked(p *view.Pod) { p.Asked = true }

func Denied(p *view.Pod) { p.Denied = true }

// Unidentified: the kubelet has no id of the VM's container.
func Unidentified(p *view.Pod) { p.Status.ContainerStatuses[0].ContainerID = "" }

// FinishedAgo has the container's end be some time ago.
func FinishedAgo(d time.Duration) func(*view.Pod) {
	return func(p *view.Pod) { view.ComputeEnd(p.Pod).FinishedAt = metav1.NewTime(Time.Add(-d)) }
}

func InState(c corev1.ContainerState) func(*view.Pod) {
	return func(p *view.Pod) {
		Bound(p)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: contract.ContainerCompute, ContainerID: Container, State: c}}
	}
}

func RunsSince(ago time.Duration) func(*view.Pod) {
	return InState(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(Time.Add(-ago))}})
}

func Exited(code int32, message string) func(*view.Pod) {
	return InState(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Message: message, ContainerID: Container, FinishedAt: metav1.NewTime(Time)}})
}

// LostSight has the kubelet say what it says of a container of which its runtime knows nothing.
func LostSight(p *view.Pod) {
	InState(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The container could not be located when the pod was terminated"}})(p)
	p.Status.Phase = corev1.PodFailed
}

// StartedAnew has the kubelet have started the container again, as its runtime could not say whether it
// runs, and that run have ended.
func StartedAnew(p *view.Pod) {
	Exited(1, "another vmlet-shim has this volume")(p)
	c := &p.Status.ContainerStatuses[0]
	c.RestartCount, c.LastTerminationState.Terminated = 1, &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}
}

// UnheardFor has the pod's agent have been away for some time.
func UnheardFor(d time.Duration) func(*view.Pod) {
	return func(p *view.Pod) { p.Report = nodes.Report{Silence: d} }
}

// MayHaveBeenOn are the nodes of a pod that vanished before anybody noted its node.
func MayHaveBeenOn(hosts ...view.Host) func(*view.Pod) {
	return func(p *view.Pod) {
		Gone(p)
		p.Hosts = []*view.Host{}
		for i := range hosts {
			hosts[i].Node.Exists = true
			p.Hosts = append(p.Hosts, &hosts[i])
		}
	}
}

// Reasoned gives the end of the VM's container the kubelet's reason.
func Reasoned(reason string) func(*view.Pod) {
	return func(p *view.Pod) { view.ComputeStatus(p.Pod).State.Terminated.Reason = reason }
}

func Heard(states ...nodev1.State) func(*view.Pod) {
	return func(p *view.Pod) {
		p.Report = nodes.Report{Current: true}
		for _, s := range states {
			p.Report.VM = &nodev1.VirtualMachine{Status: &nodev1.VirtualMachineStatus{State: s, EffectiveSpec: &specv1.VirtualMachineSpec{}}}
		}
	}
}

func EndedBy(r nodev1.EndReason) func(*view.Pod) {
	return func(p *view.Pod) {
		Heard(nodev1.State_STATE_STOPPED)(p)
		p.Report.VM.Status.EndReason, p.Report.VM.Status.Message = r, "QEMU aborted"
	}
}

func Readiness(s corev1.ConditionStatus) func(*view.Pod) {
	return func(p *view.Pod) { p.Node.Ready = s }
}

func OutOfService(p *view.Pod) { p.Node.OutOfService = true }

// NoNode: the Node was deleted, when its agent had long been away.
func NoNode(p *view.Pod) {
	p.Node = view.Node{}
	p.Report.Silence = view.HeardPatience
}

func Renewed(ago time.Duration) func(*view.Pod) {
	return func(p *view.Pod) { p.Node.Renewed = Time.Add(-ago) }
}

const (
	Running  = nodev1.State_STATE_RUNNING
	Stopping = nodev1.State_STATE_STOPPING
	Halted   = nodev1.State_STATE_STOPPED
)

func OwnGrace(d time.Duration) func(*view.Pod) {
	return func(p *view.Pod) { p.Report.VM.Status.EffectiveSpec.StopGracePeriod = durationpb.New(d) }
}

func ShutsDown(p *view.Pod) { p.Node.Ready, p.Node.ShuttingDown = corev1.ConditionFalse, true }

func PodReady(p *view.Pod) {
	p.Status.QOSClass, p.Status.PodIP = corev1.PodQOSBurstable, "10.1.0.7"
	p.Status.PodIPs = []corev1.PodIP{{IP: "10.1.0.7"}, {IP: "fd00::7"}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

// GuestSays is a guest with an agent, Docker and a lie or two.
func GuestSays(p *view.Pod) {
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

// AgentSays is a guest whose agent is connected.
func AgentSays(c *nodev1.GuestAgentCondition) func(*view.Pod) {
	return func(p *view.Pod) {
		p.Report.VM.Status.Guest = &nodev1.GuestStatus{AgentConnected: true, GuestAgentCondition: c, FsFreezeStatus: "frozen"}
	}
}

// GuestSpec is what there is to be said of a VM that runs.
func GuestSpec(p *view.Pod) { p.Report.VM.Status.EffectiveSpec = new(specv1.VirtualMachineSpec) }
