package instance

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/spec"
)

// resize gives the pod what the guest's new size takes, and has the agent resize the guest.
func (t agentCaller) resize(ctx context.Context, p *view.Pod, z action.Sizing) {
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

func (t agentCaller) resizeVM(p *view.Pod, z action.Sizing) error {
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
func (t agentCaller) resizePod(ctx context.Context, p *view.Pod) error {
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
