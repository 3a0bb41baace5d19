package subresources

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// machine reads the VM that a request names.
func (s *Server) machine(c *call) (*kubevirtv1.VirtualMachine, error) {
	vm := &kubevirtv1.VirtualMachine{}
	return vm, s.o.Client.Get(c.Context(), client.ObjectKey{Namespace: c.namespace(), Name: c.name()}, vm)
}

// instance reads the instance that a request names.
func (s *Server) instance(c *call) (*kubevirtv1.VirtualMachineInstance, error) {
	vmi := &kubevirtv1.VirtualMachineInstance{}
	return vmi, s.o.Client.Get(c.Context(), client.ObjectKey{Namespace: c.namespace(), Name: c.name()}, vmi)
}

// instanceOf reads a VM's instance; nil: it has none.
func (s *Server) instanceOf(ctx context.Context, vm *kubevirtv1.VirtualMachine) (*kubevirtv1.VirtualMachineInstance, error) {
	vmi := &kubevirtv1.VirtualMachineInstance{}
	err := s.o.Client.Get(ctx, client.ObjectKeyFromObject(vm), vmi)
	if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(vmi, vm) {
		return nil, nil
	}
	return vmi, err
}

// guest is a VM as the agent of its node knows it.
type guest struct {
	agent nodev1.NodeServiceClient
	// name is the VM's in the agent's API.
	name string
	done func()
}

// pod reads an instance's pod.
func (s *Server) pod(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := s.o.Client.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: s.o.PodName(vmi)}, pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, instanceConflict(vmi.Name, "its pod is gone")
	case err != nil:
		return nil, err
	case pod.Labels[contract.LabelCreatedBy] != string(vmi.UID):
		return nil, instanceConflict(vmi.Name, "pod %s is not its own", pod.Name)
	case pod.Spec.NodeName == "" || pod.Spec.NodeName != vmi.Status.NodeName:
		return nil, instanceConflict(vmi.Name, "its pod is on node %q, and not on %q as the instance's status says", pod.Spec.NodeName, vmi.Status.NodeName)
	}
	return pod, nil
}

// guest finds an instance's VM. Only the agent of the node that its pod is bound to is asked.
func (s *Server) guest(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) (*guest, error) {
	pod, err := s.pod(ctx, vmi)
	if err != nil {
		return nil, err
	}
	agent, done, err := s.o.Agents.Client(ctx, pod.Spec.NodeName, pod.UID)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(err.Error())
	}
	return &guest{agent: agent, name: pod.Namespace + "/" + pod.Name, done: done}, nil
}

// isTrue reports whether a condition of that type is.
func isTrue(all []kubevirtv1.Condition, kind string) bool {
	for _, c := range all {
		if c.Type == kind {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

// ended: nothing runs any more.
func ended(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return vmi.Status.Phase == kubevirtv1.PhaseSucceeded || vmi.Status.Phase == kubevirtv1.PhaseFailed
}

// running returns an error unless the instance runs.
func running(vmi *kubevirtv1.VirtualMachineInstance) error {
	if vmi.Status.Phase != kubevirtv1.PhaseRunning {
		return instanceConflict(vmi.Name, "it is not running, but %s", phaseOf(vmi))
	}
	return nil
}

func phaseOf(vmi *kubevirtv1.VirtualMachineInstance) string {
	if vmi.Status.Phase == "" {
		return "waiting"
	}
	return string(vmi.Status.Phase)
}
