package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/cluster/validation"
)

// poolRules checks pools, and the VM of their template as it would be checked if it were made.
type poolRules struct{ Rules }

func (r poolRules) ValidateCreate(ctx context.Context, pool *poolv1.VirtualMachinePool) (admission.Warnings, error) {
	return r.ValidateUpdate(ctx, nil, pool)
}

func (r poolRules) ValidateUpdate(ctx context.Context, old, pool *poolv1.VirtualMachinePool) (admission.Warnings, error) {
	if pool.DeletionTimestamp != nil || old != nil && equality.Semantic.DeepEqual(pool.Spec, old.Spec) {
		return nil, nil
	}
	faults := validation.Pool(pool, old)
	vm := validation.TemplateMachine(pool)
	var before *kubevirtv1.VirtualMachine
	if old != nil {
		before = validation.TemplateMachine(old)
	}
	if vm == nil || before != nil && equality.Semantic.DeepEqual(vm.Spec, before.Spec) {
		return nil, refused(poolv1.Group, poolv1.Kind, pool.Name, faults)
	}
	request, err := r.request(ctx, len(vm.Spec.DataVolumeTemplates) > 0)
	if err != nil {
		return nil, err
	}
	request.Root = validation.PoolTemplate()
	more, warnings, err := r.judge(ctx, vm, before, request)
	if err != nil {
		return nil, err
	}
	return warnings, refused(poolv1.Group, poolv1.Kind, pool.Name, append(faults, more...))
}

func (poolRules) ValidateDelete(context.Context, *poolv1.VirtualMachinePool) (admission.Warnings, error) {
	return nil, nil
}
