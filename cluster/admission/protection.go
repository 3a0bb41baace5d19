package admission

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/defaults"
	"github.com/vmlet/vmlet/cluster/validation"
)

// instanceOrigin gives a new instance what vmlet itself goes by, where another webhook fills in its spec.
type instanceOrigin struct{ config Configurations }

func (d instanceOrigin) Default(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) error {
	c, err := d.config.Configuration(ctx)
	if err == nil {
		defaults.NewInstance(vmi, c)
	}
	return err
}

// protectedMachine refuses what would lose something, where another webhook judges all else.
type protectedMachine struct{ Rules }

func (r protectedMachine) ValidateCreate(ctx context.Context, vm *kubevirtv1.VirtualMachine) (admission.Warnings, error) {
	return r.ValidateUpdate(ctx, nil, vm)
}

func (r protectedMachine) ValidateUpdate(ctx context.Context, old, vm *kubevirtv1.VirtualMachine) (admission.Warnings, error) {
	request, err := r.request(ctx, false)
	if err != nil {
		return nil, err
	}
	return nil, refused(kubevirtv1.Group, "VirtualMachine", vm.Name, validation.ProtectMachine(vm, old, request))
}

func (protectedMachine) ValidateDelete(context.Context, *kubevirtv1.VirtualMachine) (admission.Warnings, error) {
	return nil, nil
}

// protectedInstance is the same of instances.
type protectedInstance struct{ Rules }

func (r protectedInstance) ValidateCreate(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) (admission.Warnings, error) {
	return r.ValidateUpdate(ctx, nil, vmi)
}

func (r protectedInstance) ValidateUpdate(ctx context.Context, old, vmi *kubevirtv1.VirtualMachineInstance) (admission.Warnings, error) {
	request, err := r.request(ctx, false)
	if err != nil {
		return nil, err
	}
	return nil, refused(kubevirtv1.Group, "VirtualMachineInstance", vmi.Name, validation.ProtectInstance(vmi, old, request))
}

func (protectedInstance) ValidateDelete(context.Context, *kubevirtv1.VirtualMachineInstance) (admission.Warnings, error) {
	return nil, nil
}
