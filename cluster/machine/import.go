package machine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/claimuse"
	"github.com/vmlet/vmlet/cluster/imports"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// importClaim makes the claim of a template, which package importers fills.
func (t templates) importClaim(ctx context.Context, vm *kubevirtv1.VirtualMachine, template *kubevirtv1.DataVolumeTemplateSpec) error {
	var from imports.Origin
	if source := template.Spec.Source; source != nil && source.PVC != nil {
		var err error
		if from, err = t.origin(ctx, vm.Namespace, source.PVC.Name); err != nil {
			return err
		}
	}
	claim := imports.Claim(vm, template, run.OwnedBy(vm), from)
	if err := t.Client.Create(ctx, claim); err != nil {
		return err
	}
	t.event(vm, action.Normal(reasonSuccessfulDataVolumeCreate, "Created PersistentVolumeClaim %s to import %s", template.Name, claim.Annotations[contract.AnnotationImport]))
	return nil
}

// origin reads the claim that is copied, and how its storage makes copies.
func (t templates) origin(ctx context.Context, namespace, name string) (from imports.Origin, err error) {
	claim := new(corev1.PersistentVolumeClaim)
	there, err := get(ctx, t.Live, types.NamespacedName{Namespace: namespace, Name: name}, claim)
	if err != nil {
		return from, err
	}
	if !there {
		return from, refusal(reasonSourceNotAvailable, "claim %s/%s does not exist, which dataVolumeTemplates has as a source: make it, or name another", namespace, name)
	}
	from.Claim = claim
	var pods corev1.PodList // the cache has VMs' alone
	if err := t.Live.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return from, fmt.Errorf("list the pods that use claim %s: %w", name, err)
	}
	var instances kubevirtv1.VirtualMachineInstanceList
	if err := t.Client.List(ctx, &instances, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return from, fmt.Errorf("list the VMs that use claim %s: %w", name, err)
	}
	from.User = claimuse.User(pods.Items, instances.Items, claimuse.Use{Claim: name})
	if class := claim.Spec.StorageClassName; class != nil && *class != "" {
		found := new(storagev1.StorageClass)
		if there, err = get(ctx, t.Live, types.NamespacedName{Name: *class}, found); there {
			from.Class = found
		}
	}
	return from, err
}

// bindClaim has a claim filled though no pod uses it yet: its VM is to start.
func (t templates) bindClaim(ctx context.Context, vm *kubevirtv1.VirtualMachine, name string) error {
	claim := new(corev1.PersistentVolumeClaim)
	claim.Namespace, claim.Name = vm.Namespace, name
	bind := map[string]any{"metadata": map[string]any{"annotations": map[string]string{contract.AnnotationBindImmediately: "true"}}}
	if err := t.merge(ctx, claim, bind); err != nil {
		return fmt.Errorf("having claim %s filled: %w", name, err)
	}
	return nil
}
