package admission

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/validation"
)

// replicaSetRules checks sets of instances, and the instance of their template as it would be checked if it were made.
type replicaSetRules struct{ Rules }

func (r replicaSetRules) ValidateCreate(ctx context.Context, set *kubevirtv1.VirtualMachineInstanceReplicaSet) (admission.Warnings, error) {
	return r.ValidateUpdate(ctx, nil, set)
}

func (r replicaSetRules) ValidateUpdate(ctx context.Context, old, set *kubevirtv1.VirtualMachineInstanceReplicaSet) (admission.Warnings, error) {
	request, err := r.request(ctx, false)
	if err != nil {
		return nil, err
	}
	faults, warnings := validation.ReplicaSet(set, old, request)
	return warnings, refused(kubevirtv1.Group, kubevirtv1.KindReplicaSet, set.Name, faults)
}

func (replicaSetRules) ValidateDelete(context.Context, *kubevirtv1.VirtualMachineInstanceReplicaSet) (admission.Warnings, error) {
	return nil, nil
}
