package guest

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// currentMemory is what the guest has of its memory, in bytes.
func currentMemory(s *specv1.VirtualMachineSpec) (uint64, bool) {
	text := cmp.Or(s.GetMemory().GetTarget(), s.GetMemory().GetSize())
	bytes, err := spec.ParseQuantity(condition.Clip(text, condition.MaxGuestText))
	return bytes, err == nil
}

// sizings are what the guest has otherwise than its instance wants. Only a size that was set while the guest
// ran counts: one that goes on from an image may have grown before.
func sizings(v *view.View) (all []action.Sizing) {
	effective := v.Effective()
	if effective == nil || v.Instance.Annotations[contract.AnnotationLiveSize] == "" {
		return nil
	}
	if cpu := v.Instance.Spec.Domain.CPU; cpu != nil {
		wanted := uint64(max(cpu.Sockets, 1)) * uint64(max(cpu.Cores, 1)) * uint64(max(cpu.Threads, 1))
		if now := spec.VCPUs(effective.GetCpu()); wanted > now && wanted <= spec.MaxVCPUs {
			all = append(all, action.Sizing{Condition: kubevirtv1.ConditionHotVCPUChange, VCPUs: uint32(wanted)})
		}
	}
	wanted, err := convert.GuestMemory(&v.Instance.Spec)
	now, known := currentMemory(effective)
	if err == nil && known && wanted != now {
		all = append(all, action.Sizing{Condition: kubevirtv1.ConditionHotMemoryChange, Memory: wanted})
	}
	return all
}

// wasRefused: the status says that the guest can't be given the size that the instance wants, whose spec has not changed
// since.
func wasRefused(v *view.View, z action.Sizing) bool {
	c := condition.Find(v.Instance.Status.Conditions, z.Condition)
	return c != nil && c.Status == metav1.ConditionFalse && c.ObservedGeneration == v.Instance.Generation
}

// Resize has a guest that runs be given the size that its instance wants. What was refused is not
// asked for again until the instance's spec changes.
func Resize(v *view.View) action.Action {
	p := v.Pod
	if p == nil || p.Gone || p.Deleting() || p.Ended() || p.Resized || v.Recorded() != kubevirtv1.PhaseRunning || v.StopStrategy() != "" ||
		p.Report.VM.GetStatus().GetState() != nodev1.State_STATE_RUNNING {
		return nil
	}
	for _, z := range sizings(v) {
		if !wasRefused(v, z) {
			return action.Resize{Pod: p, Sizing: z}
		}
	}
	return nil
}

// ResizeConditions are of what a guest is being given, or was refused.
func ResizeConditions(v *view.View, phase kubevirtv1.Phase) (all []kubevirtv1.Condition) {
	if phase != kubevirtv1.PhaseRunning {
		return nil
	}
	for _, z := range sizings(v) {
		switch f := v.Unsized[z.Condition]; {
		case f != nil:
			all = append(all, condition.New(z.Condition, metav1.ConditionFalse, f.Reason, z.String()+": "+f.Message))
		case wasRefused(v, z):
			all = append(all, *condition.Find(v.Instance.Status.Conditions, z.Condition))
		default:
			all = append(all, condition.New(z.Condition, metav1.ConditionTrue, condition.ReasonResizing, "the guest is given "+z.String()))
		}
	}
	return all
}
