package status

import (
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/guest"
	"github.com/vmlet/vmlet/cluster/instance/phase"
	"github.com/vmlet/vmlet/cluster/instance/save"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
)

// Write writes the status if it says something new.
func Write(v *view.View) action.Action {
	s := Of(v)
	if apiequality.Semantic.DeepEqual(*s, v.Instance.Status) {
		return nil
	}
	return action.WriteStatus{Status: s, Events: Events(&v.Instance.Status, s)}
}

// Of is the status of the instance as it follows from all that is observed.
func Of(v *view.View) *kubevirtv1.VirtualMachineInstanceStatus {
	s := v.Instance.Status.DeepCopy()
	if v.Final() {
		return s
	}
	to, why := phase.Of(v)
	s.Reason = why.Reason
	s.Conditions = condition.Merge(s.Conditions, conditionsOf(v, to, why), metav1.NewTime(v.Now))
	s.Phase = to
	enterPhase(v, s)
	if view.IsFinal(to) {
		s.SavedImage = save.SavedAs(v, why)
		return s
	}
	if to != kubevirtv1.PhaseScheduling || s.VolumeStatus == nil {
		s.VolumeStatus = volumeStatuses(v, to)
		save.SetTargets(v, s)
	}
	fillAsked(v, s)
	if v.Pod == nil || v.Pod.Gone {
		return s
	}
	podStatus(v, s)
	if to == kubevirtv1.PhaseRunning && v.Pod.Report.Current && v.Pod.Report.VM != nil {
		guest.Fill(v, s, v.Pod.Report.VM)
		paceGuest(v, s)
	}
	return s
}

// fillAsked fills in what follows from the instance alone.
func fillAsked(v *view.View, s *kubevirtv1.VirtualMachineInstanceStatus) {
	owner, generation := metav1.GetControllerOf(v.Instance), v.Instance.Annotations[contract.AnnotationVMGeneration]
	if s.VirtualMachineRevisionName == "" && owner != nil && owner.Kind == "VirtualMachine" && generation != "" {
		s.VirtualMachineRevisionName = contract.RevisionPrefix + string(owner.UID) + "-" + condition.Clip(generation, condition.MaxGuestText)
	}
	if s.Memory == nil {
		if q := guest.RequestedMemory(&v.Instance.Spec.Domain); q != nil {
			s.Memory = &kubevirtv1.MemoryStatus{GuestAtBoot: q, GuestCurrent: q, GuestRequested: q}
		}
	}
	if cpu := v.Instance.Spec.Domain.CPU; cpu != nil && s.CurrentCPUTopology == nil {
		s.CurrentCPUTopology = &kubevirtv1.CPUTopology{Sockets: max(cpu.Sockets, 1), Cores: max(cpu.Cores, 1), Threads: max(cpu.Threads, 1)}
	}
}

// enterPhase notes when the instance came to its phase for the first time. A guest that is seen
// running at once was Scheduled when its container started.
func enterPhase(v *view.View, s *kubevirtv1.VirtualMachineInstanceStatus) {
	add := func(phase kubevirtv1.Phase, at time.Time) {
		if !view.Entered(s, phase) {
			s.PhaseTransitionTimestamps = append(s.PhaseTransitionTimestamps,
				kubevirtv1.PhaseTransition{Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(at.UTC().Truncate(time.Second))})
		}
	}
	if len(s.PhaseTransitionTimestamps) == 0 {
		add(kubevirtv1.PhasePending, v.Instance.CreationTimestamp.Time)
	}
	if s.Phase == kubevirtv1.PhaseRunning {
		if since, runs := v.Pod.Runs(); runs {
			add(kubevirtv1.PhaseScheduled, since)
		}
	}
	if convert.RestoreFrom(v.Instance) != nil && v.Ran(s.Phase) {
		add(kubevirtv1.PhaseRunning, v.Now) // else its image would be taken for one that nobody has gone on from
	}
	add(s.Phase, v.Now)
}

// podStatus fills in what follows from the pod. Its node is left out until the container
// runs, which saves a write.
func podStatus(v *view.View, s *kubevirtv1.VirtualMachineInstanceStatus) {
	p := v.Pod
	if p.Status.QOSClass != "" {
		class := p.Status.QOSClass
		s.QOSClass = &class
	}
	s.RuntimeUser = runtimeUser
	for _, c := range p.Spec.Containers {
		if c.Name == contract.ContainerCompute {
			s.LauncherContainerImageVersion = c.Image
		}
	}
	if s.Phase != kubevirtv1.PhaseScheduling {
		s.NodeName = p.Spec.NodeName
		s.ActivePods = map[types.UID]string{p.UID: p.Spec.NodeName}
		if s.NodeMachine == nil || s.NodeMachine.Identity == "" {
			s.NodeMachine = p.Node.Machine
		}
	} else if _, _, has := view.Active(s); !has {
		s.ActivePods = map[types.UID]string{p.UID: ""}
	}
	if s.Phase == kubevirtv1.PhaseRunning && p.Node.ShuttingDown && !p.Deleting() && convert.AwaitsSave(v.Instance) {
		s.EvacuationNodeName = p.Spec.NodeName // as an eviction would have it
	}
}

// paceGuest keeps what the guest says of itself as it was where that was written just now.
func paceGuest(v *view.View, s *kubevirtv1.VirtualMachineInstanceStatus) {
	recorded := &v.Instance.Status
	connected := condition.Find(s.Conditions, kubevirtv1.ConditionAgentConnected)
	same := apiequality.Semantic.DeepEqual(s.Interfaces, recorded.Interfaces) && apiequality.Semantic.DeepEqual(s.GuestOSInfo, recorded.GuestOSInfo)
	if connected == nil || same {
		return
	}
	if !connected.LastProbeTime.IsZero() && v.Now.Before(connected.LastProbeTime.Add(GuestInterval)) && recorded.Interfaces != nil {
		s.Interfaces, s.GuestOSInfo = recorded.Interfaces, recorded.GuestOSInfo
		return
	}
	connected.LastProbeTime = metav1.NewTime(v.Now)
}

const (
	// GuestInterval is between two writes for the sake of the guest's own word: a guest that
	// makes and removes interfaces all the time costs no more.
	GuestInterval = 15 * time.Second
	// runtimeUser is the user of VMs' pods.
	runtimeUser = 107
)
