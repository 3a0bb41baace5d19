// Package hibernation has VMs hibernated, resumed and moved: it asks the cluster for that, and
// waits for what comes of it. It decides nothing that vmlet-controller decides. Start reading at
// Commands.
package hibernation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cmd/kubectl-vmlet/internal/text"
	"github.com/vmlet/vmlet/cmd/kubectl-vmlet/internal/why"
	"github.com/vmlet/vmlet/contract"
)

// Commands act on the VMs of a namespace.
type Commands struct {
	Client    client.WithWatch
	Namespace string
	// Start asks vmlet-api to start a VM, as virtctl does.
	Start func(ctx context.Context, namespace, name string) error
	// Out gets what has been done, and how far it is.
	Out io.Writer
}

// machine reads a VM.
func (c *Commands) machine(ctx context.Context, name string) (*kubevirtv1.VirtualMachine, error) {
	vm := &kubevirtv1.VirtualMachine{}
	err := c.Client.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: name}, vm)
	if apierrors.IsNotFound(err) {
		return nil, &why.NotFoundError{Namespace: c.Namespace, Name: name}
	}
	return vm, err
}

// instance reads a VM's instance; nil: it has none that runs or will.
func (c *Commands) instance(ctx context.Context, name string) (*kubevirtv1.VirtualMachineInstance, error) {
	vmi := &kubevirtv1.VirtualMachineInstance{}
	err := c.Client.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: name}, vmi)
	if apierrors.IsNotFound(err) || err == nil && (vmi.Status.Phase == kubevirtv1.PhaseSucceeded || vmi.Status.Phase == kubevirtv1.PhaseFailed) {
		return nil, nil
	}
	return vmi, err
}

func (c *Commands) say(format string, args ...any) {
	fmt.Fprintln(c.Out, text.Safe(fmt.Sprintf(format, args...)))
}

// Hibernate has a VM hibernate, and notes the run strategy that it has until then.
func (c *Commands) Hibernate(ctx context.Context, name string, wait bool) error {
	vm, err := c.machine(ctx, name)
	if err != nil {
		return err
	}
	if hibernated(vm) && seen(vm) && kubevirtv1.RunStrategyOf(&vm.Spec) == kubevirtv1.RunStrategyHibernate {
		c.say("VM %s is hibernated.", name)
		return nil
	}
	vmi, err := c.instance(ctx, name)
	switch {
	case err != nil:
		return err
	case vmi == nil:
		return fmt.Errorf("VM %s does not run: there is nothing to be saved", name)
	}
	if kubevirtv1.RunStrategyOf(&vm.Spec) != kubevirtv1.RunStrategyHibernate {
		body, err := json.Marshal(patchOf(vm, true))
		if err != nil {
			return err
		}
		if err := c.Client.Patch(ctx, vm, client.RawPatch(types.MergePatchType, body)); err != nil {
			return err
		}
	}
	if !wait {
		c.say("VM %s is being hibernated: kubectl vmlet why %s -n %s says how far it is.", name, name, c.Namespace)
		return nil
	}
	return c.untilSaved(ctx, vm)
}

// Patch writes what Hibernate would change of a VM, and changes nothing.
func (c *Commands) Patch(ctx context.Context, name string) error {
	vm, err := c.machine(ctx, name)
	if err != nil {
		return err
	}
	content, err := yaml.Marshal(patchOf(vm, false))
	if err == nil {
		_, err = c.Out.Write(content)
	}
	return err
}

// patchOf is what hibernates a VM: as a merge patch of the VM as it was read, or as a patch in a
// repository of manifests.
func patchOf(vm *kubevirtv1.VirtualMachine, asRead bool) map[string]any {
	metadata := map[string]any{"name": vm.Name, "namespace": vm.Namespace}
	if asRead {
		metadata["resourceVersion"] = vm.ResourceVersion
	}
	before := kubevirtv1.RunStrategyOf(&vm.Spec)
	if before != kubevirtv1.RunStrategyHalted && before != kubevirtv1.RunStrategyHibernate {
		metadata["annotations"] = map[string]any{contract.AnnotationResumeStrategy: before}
	}
	spec := map[string]any{"runStrategy": kubevirtv1.RunStrategyHibernate}
	//lint:ignore SA1019 users' manifests still have it
	if vm.Spec.Running != nil {
		spec["running"] = nil
	}
	return map[string]any{
		"apiVersion": kubevirtv1.Group + "/" + kubevirtv1.Version, "kind": "VirtualMachine", "metadata": metadata, "spec": spec,
	}
}

// Resume has a hibernated VM go on, or boot afresh, with the run strategy that it had.
func (c *Commands) Resume(ctx context.Context, name string, boot, wait bool) error {
	vm, err := c.machine(ctx, name)
	if err != nil {
		return err
	}
	if vm.Status.HibernationStatus == nil && kubevirtv1.RunStrategyOf(&vm.Spec) != kubevirtv1.RunStrategyHibernate {
		return fmt.Errorf("VM %s is not hibernated, but %s: virtctl start boots a VM", name, cmp.Or(string(vm.Status.PrintableStatus), "new"))
	}
	before := vm.DeepCopy()
	if boot {
		if err := c.setStartStrategy(ctx, vm, new(kubevirtv1.StartBoot)); err != nil {
			return err
		}
	}
	if unasked(vm) {
		c.say("VM %s has runStrategy %s: it is resumed without being asked.", name, kubevirtv1.RunStrategyOf(&vm.Spec))
		before.Status.ResumeStatus = nil // what has failed is over only if something has changed
	} else if err := c.Start(ctx, c.Namespace, name); err != nil {
		return err
	} else {
		c.say("VM %s is being resumed.", name)
	}
	if !wait {
		if boot {
			c.say("Its spec.startStrategy is Boot from now on: remove it, or the next start after a hibernation discards what was saved, too.")
		}
		return nil
	}
	if err := c.untilRuns(ctx, vm, before.Status.ResumeStatus); err != nil || !boot {
		return err
	}
	if vm, err = c.machine(ctx, name); err != nil {
		return err
	}
	return c.setStartStrategy(ctx, vm, before.Spec.StartStrategy)
}

// unasked: the VM's run strategy resumes it, and vmlet-api refuses a start.
func unasked(vm *kubevirtv1.VirtualMachine) bool {
	switch kubevirtv1.RunStrategyOf(&vm.Spec) {
	case kubevirtv1.RunStrategyOnce:
		return true
	case kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyRerunOnFailure:
		return vm.Status.ResumeStatus == nil || vm.Status.ResumeStatus.Phase != kubevirtv1.ResumeFailed
	}
	return false
}

// setStartStrategy writes spec.startStrategy; nil removes it.
func (c *Commands) setStartStrategy(ctx context.Context, vm *kubevirtv1.VirtualMachine, to *kubevirtv1.StartStrategy) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": vm.ResourceVersion},
		"spec":     map[string]any{"startStrategy": to},
	})
	if err != nil {
		return err
	}
	return c.Client.Patch(ctx, vm, client.RawPatch(types.MergePatchType, body))
}

// interrupted says what goes on though nobody waits for it any more.
func interrupted(err error, format string, args ...any) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted: %s", fmt.Sprintf(format, args...))
	}
	return err
}
