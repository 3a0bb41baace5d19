package instance

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/contract"
)

// TestResizePod: the pod's container requests, and is limited to, what a pod would for the new size; what
// it does not have it does not get.
func TestResizePod(t *testing.T) {
	cpus := func(request, limit string) corev1.ResourceRequirements {
		r := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(request)}}
		if limit != "" {
			r.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(limit)}
		}
		return r
	}
	gone := apierrors.NewNotFound(corev1.Resource("pods"), "resize")
	full := apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New("exceeded quota"))
	for name, c := range map[string]struct {
		was, is corev1.ResourceRequirements
		answer  error
		want    string
		code    codes.Code
	}{
		"request":           {cpus("100m", ""), cpus("200m", ""), nil, `{"requests":{"cpu":"200m"}}`, codes.OK},
		"request and limit": {cpus("100m", "1"), cpus("200m", "2"), nil, `{"limits":{"cpu":"2"},"requests":{"cpu":"200m"}}`, codes.OK},
		"the same":          {cpus("100m", "1"), cpus("100m", "1"), nil, "", codes.OK},
		"no such API":       {cpus("100m", ""), cpus("200m", ""), gone, `{"requests":{"cpu":"200m"}}`, codes.OK},
		"quota":             {cpus("100m", ""), cpus("200m", ""), full, `{"requests":{"cpu":"200m"}}`, codes.FailedPrecondition},
	} {
		s := scene.On(kubevirtv1.PhaseRunning, scene.RunsSince(0))
		of := func(r corev1.ResourceRequirements) *corev1.Pod {
			p := s.Pod.DeepCopy()
			p.Spec.Containers = []corev1.Container{{Name: "sidecar"}, {Name: contract.ContainerCompute, Resources: r}}
			return p
		}
		s.Pod.Pod = of(c.was)
		got := ""
		api := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			SubResourcePatch: func(_ context.Context, _ client.Client, to string, _ client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
				data, err := patch.Data(nil)
				if err != nil || to != "resize" {
					t.Errorf("%s: patch of %s: %v", name, to, err)
				}
				var p struct {
					Spec struct {
						Containers []struct {
							Name      string
							Resources json.RawMessage
						}
					}
				}
				if err := json.Unmarshal(data, &p); err != nil || len(p.Spec.Containers) != 1 || p.Spec.Containers[0].Name != contract.ContainerCompute {
					t.Fatalf("the patch is %s: %v", data, err)
				}
				got = string(p.Spec.Containers[0].Resources)
				return c.answer
			},
		})
		r := &Reconciler{Client: api, Pod: func(*kubevirtv1.VirtualMachineInstance, map[string]*corev1.PersistentVolumeClaim) (*corev1.Pod, error) {
			return of(c.is), nil
		}}
		err := agentCaller{&round{Reconciler: r, o: s.View}}.resizePod(t.Context(), s.Pod)
		if got != c.want || status.Code(err) != c.code {
			t.Errorf("%s: resources %s and error %v, want %s and %v", name, got, err, c.want, c.code)
		}
	}
}
