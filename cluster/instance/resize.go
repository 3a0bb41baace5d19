package instance

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/spec"
)

// resizePatience is how long an agent may take to resize a guest: it looks for some seconds how far the
// guest has come.
const resizePatience = 15 * time.Second

// sizings are what the guest has otherwise than its instance wants. Only a size that was set while the guest
// ran counts: one that goes on from an image may have grown before.
func sizings(o *view.View) (all []action.Sizing) {
	effective := o.Effective()
	if effective == nil || o.Instance.Annotations[contract.AnnotationLiveSize] == "" {
		return nil
	}
	if cpu := o.Instance.Spec.Domain.CPU; cpu != nil {
		wanted := uint64(max(cpu.Sockets, 1)) * uint64(max(cpu.Cores, 1)) * uint64(max(cpu.Threads, 1))
		if now := spec.VCPUs(effective.GetCpu()); wanted > now && wanted <= spec.MaxVCPUs {
			all = append(all, action.Sizing{Condition: kubevirtv1.ConditionHotVCPUChange, VCPUs: uint32(wanted)})
		}
	}
	wanted, err := convert.GuestMemory(&o.Instance.Spec)
	now, known := currentMemory(effective)
	if err == nil && known && wanted != now {
		all = append(all, action.Sizing{Condition: kubevirtv1.ConditionHotMemoryChange, Memory: wanted})
	}
	return all
}

// resizeGuest has a guest that runs be given the size that its instance wants. What was refused is not
// asked for again.
func resizeGuest(o *view.View) action.Action {
	p := o.Pod
	if p == nil || p.Gone || p.Deleting() || p.Ended() || p.Resized || o.Recorded() != kubevirtv1.PhaseRunning || o.StopStrategy() != "" ||
		p.Report.VM.GetStatus().GetState() != nodev1.State_STATE_RUNNING {
		return nil
	}
	for _, z := range sizings(o) {
		if !wasRefused(o, z) {
			return action.Resize{Pod: p, Sizing: z}
		}
	}
	return nil
}

// wasRefused: the status says that the guest can't be given that size.
func wasRefused(o *view.View, z action.Sizing) bool {
	c := condition.Find(o.Instance.Status.Conditions, z.Condition)
	return c != nil && c.Status == metav1.ConditionFalse && strings.HasPrefix(c.Message, condition.Sentence(z.String()+": "))
}

// resizeConditions are of what a guest is being given, or was refused.
func resizeConditions(o *view.View, phase kubevirtv1.Phase) (all []kubevirtv1.Condition) {
	if phase != kubevirtv1.PhaseRunning {
		return nil
	}
	for _, z := range sizings(o) {
		switch f := o.Unsized[z.Condition]; {
		case f != nil:
			all = append(all, condition.New(z.Condition, metav1.ConditionFalse, f.Reason, z.String()+": "+f.Message))
		case wasRefused(o, z):
			all = append(all, *condition.Find(o.Instance.Status.Conditions, z.Condition))
		default:
			all = append(all, condition.New(z.Condition, metav1.ConditionTrue, condition.ReasonResizing, "the guest is given "+z.String()))
		}
	}
	return all
}

// resize gives the pod what the guest's new size takes, and has the agent resize the guest.
func (t *round) resize(ctx context.Context, p *view.Pod, z action.Sizing) {
	p.Resized = true
	err := t.resizePod(ctx, p)
	if err == nil {
		err = t.resizeVM(p, z)
	}
	switch status.Code(err) {
	case codes.OK:
	case codes.FailedPrecondition, codes.InvalidArgument, codes.PermissionDenied, codes.Unimplemented:
		if t.o.Unsized == nil {
			t.o.Unsized = make(map[string]*condition.Fault)
		}
		t.o.Unsized[z.Condition] = &condition.Fault{Reason: condition.ReasonRefused, Message: t.o.ErrorWords(err)}
	default:
		t.failures = append(t.failures, fmt.Errorf("giving the VM of pod %s %v: %w", p.Name, z, err))
	}
}

func (t *round) resizeVM(p *view.Pod, z action.Sizing) error {
	request := &nodev1.ResizeVMRequest{Name: p.Namespace + "/" + p.Name, Vcpus: z.VCPUs}
	if z.Memory != 0 {
		request.Memory = spec.FormatQuantity(z.Memory)
	}
	_, err := t.ask(p, "resize to "+z.String(), func(ctx context.Context, agent nodev1.NodeServiceClient) error {
		ctx, cancel := context.WithTimeout(ctx, resizePatience)
		defer cancel()
		_, err := agent.ResizeVM(ctx, request)
		return err
	})
	return err
}

// resizePod has the pod request, and be limited to, the CPUs that a pod would for the instance as it is now.
// An API server that can't change a running pod leaves it as it is.
func (t *round) resizePod(ctx context.Context, p *view.Pod) error {
	wanted, err := t.Pod(t.o.Instance.DeepCopy(), t.o.Claims)
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	resources := make(map[string]corev1.ResourceList)
	was, is := compute(p.Pod), compute(wanted)
	for kind, lists := range map[string][2]corev1.ResourceList{"requests": {was.Requests, is.Requests}, "limits": {was.Limits, is.Limits}} {
		to, has := lists[1][corev1.ResourceCPU]
		if from, had := lists[0][corev1.ResourceCPU]; has && had && from.Cmp(to) != 0 {
			resources[kind] = corev1.ResourceList{corev1.ResourceCPU: to}
		}
	}
	if len(resources) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "spec": map[string]any{"containers": []any{
		map[string]any{"name": contract.ContainerCompute, "resources": resources},
	}}})
	if err != nil {
		return err
	}
	changed := p.DeepCopy()
	err = t.Client.SubResource("resize").Patch(ctx, changed, client.RawPatch(types.StrategicMergePatchType, patch))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return status.Error(codes.FailedPrecondition, "the pod can't be resized: "+err.Error())
	case err == nil:
		p.Pod = changed
	}
	return err
}

func compute(p *corev1.Pod) (r corev1.ResourceRequirements) {
	for _, c := range p.Spec.Containers {
		if c.Name == contract.ContainerCompute {
			return c.Resources
		}
	}
	return r
}
