package hibernation

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// evacuating begins the answer to an eviction by which a VM is moved.
const evacuating = "Eviction triggered evacuation"

// Move has a VM leave its node: it is saved, and goes on where the scheduler finds room.
func (c *Commands) Move(ctx context.Context, name string, wait bool) error {
	vm, err := c.machine(ctx, name)
	if err != nil {
		return err
	}
	vmi, err := c.instance(ctx, name)
	switch {
	case err != nil:
		return err
	case vmi == nil:
		return fmt.Errorf("VM %s does not run: there is nothing to be moved", name)
	case kubevirtv1.RunStrategyOf(&vm.Spec) == kubevirtv1.RunStrategyHibernate:
		return fmt.Errorf("VM %s is being hibernated: kubectl vmlet resume %s -n %s has it go on", name, name, c.Namespace)
	}
	if s := vmi.Spec.EvictionStrategy; s != nil && *s == kubevirtv1.EvictionHibernate {
		return c.evacuate(ctx, vm, vmi, wait)
	}
	c.say("VM %s may come back to node %s, unless that is cordoned.", name, vmi.Status.NodeName)
	if err := c.Hibernate(ctx, name, true); err != nil {
		return c.goOn(ctx, name, err)
	}
	return c.Resume(ctx, name, false, wait)
}

// goOn has a VM go on as before that could not be saved. Where somebody has interrupted the
// waiting, the VM hibernates, as the command then says.
func (c *Commands) goOn(ctx context.Context, name string, failed error) error {
	var save *saveError
	if !errors.As(failed, &save) {
		return failed
	}
	if err := c.Start(ctx, c.Namespace, name); err != nil {
		return errors.Join(failed, fmt.Errorf("runStrategy of VM %s is still Hibernate: %w", name, err))
	}
	return fmt.Errorf("%s; its run strategy is as it was", save.text)
}

// evacuate asks for the eviction of the VM's pod, as a drain does. Nothing is evicted: where that
// would shut the guest down, it is not asked for.
func (c *Commands) evacuate(ctx context.Context, vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance, wait bool) error {
	pod, err := c.pod(ctx, vmi)
	if err != nil {
		return err
	}
	for _, options := range [][]client.SubResourceCreateOption{{client.DryRunAll}, nil} {
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
		err := c.Client.SubResource("eviction").Create(ctx, pod, eviction, options...)
		switch {
		case err == nil && len(options) > 0:
			return fmt.Errorf("VM %s is not moved: an eviction of its pod would shut the guest down now, as it can't be saved, its warningTimeoutSeconds are over, or no vmlet-api answers: kubectl vmlet why %s -n %s", vm.Name, vm.Name, c.Namespace)
		case err == nil:
			return fmt.Errorf("pod %s was evicted: the guest of VM %s shuts down", pod.Name, vm.Name)
		case !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), evacuating):
			return err
		}
	}
	c.say("VM %s leaves node %s.", vm.Name, pod.Spec.NodeName)
	if !wait {
		return nil
	}
	err = c.await(ctx, vm, func(now *kubevirtv1.VirtualMachine) (bool, error) {
		if h := now.Status.HibernationStatus; h != nil && h.Phase == kubevirtv1.HibernationFailed {
			return false, failedSave(now)
		}
		elsewhere, err := c.instance(ctx, vm.Name)
		if err != nil || elsewhere == nil || elsewhere.UID == vmi.UID {
			return false, err
		}
		return runs(now)
	})
	if err == nil {
		c.say("VM %s runs.", vm.Name)
	}
	return interrupted(err, "VM %[1]s still leaves its node: kubectl vmlet why %[1]s -n %[2]s says how far it is", vm.Name, c.Namespace)
}

// pod returns the one that an instance's guest runs in.
func (c *Commands) pod(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) (*corev1.Pod, error) {
	var all corev1.PodList
	err := c.Client.List(ctx, &all, client.InNamespace(vmi.Namespace), client.MatchingLabels{
		contract.LabelCreatedBy: string(vmi.UID), contract.LabelApp: contract.LabelAppLauncher,
	})
	if err != nil {
		return nil, err
	}
	for i := range all.Items {
		if p := &all.Items[i]; p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("the guest of VM %s does not run yet", vmi.Name)
}
