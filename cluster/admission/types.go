package admission

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instancetype"
	"github.com/vmlet/vmlet/cluster/instancetype/lookup"
	"github.com/vmlet/vmlet/cluster/validation"
)

// expansion is a VM with what its instancetype and preference say; the VM as it is written, if
// they are not there or don't fit.
type expansion struct {
	vm     *kubevirtv1.VirtualMachine
	types  instancetype.Types
	faults field.ErrorList
}

func (r Rules) expand(ctx context.Context, vm *kubevirtv1.VirtualMachine, arch string) (expansion, error) {
	found, err := lookup.Types(ctx, r.objects, vm)
	if err != nil || len(found.Faults) > 0 {
		return expansion{vm: vm, faults: found.Faults}, err
	}
	full, conflicts := instancetype.Expand(vm, found.Types)
	if len(conflicts) > 0 {
		return expansion{vm: vm, faults: conflicts}, nil
	}
	return expansion{vm: full, types: found.Types, faults: instancetype.Unmet(full, found.Types, arch)}, nil
}

// judge validates a VM as it is with its instancetype and preference. An update has those faults
// alone that the old VM had not: one whose instancetype is gone can still be stopped.
func (r Rules) judge(ctx context.Context, vm, old *kubevirtv1.VirtualMachine, request validation.Request) (field.ErrorList, admission.Warnings, error) {
	now, err := r.expand(ctx, vm, request.Configuration.DefaultArchitecture)
	if err != nil {
		return nil, nil, err
	}
	faults := now.faults
	if old != nil {
		before, err := r.expand(ctx, old, request.Configuration.DefaultArchitecture)
		if err != nil {
			return nil, nil, err
		}
		faults, old = without(faults, before.faults), before.vm
	}
	for _, f := range faults {
		f.Field = request.Root.Child(f.Field).String()
	}
	faults, warnings := awaited(faults)
	more, others := validation.Machine(now.vm, old, request)
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	attribute(more, vm, now.types, request)
	return append(faults, more...), append(warnings, others...), nil
}

// awaited has warnings in place of faults for what is not there yet: a folder of manifests is applied in any
// order, and the controller starts the VM once there is all that it names.
func awaited(faults field.ErrorList) (rest field.ErrorList, warnings admission.Warnings) {
	for _, f := range faults {
		if f.Type == field.ErrorTypeNotFound {
			warnings = append(warnings, fmt.Sprintf("%s: there is no %s: the VM can't start before there is", f.Field, f.Detail))
		} else {
			rest = append(rest, f)
		}
	}
	return rest, warnings
}

// attribute adds to faults that a VM has of its instancetype or preference which of them it is.
func attribute(faults field.ErrorList, vm *kubevirtv1.VirtualMachine, types instancetype.Types, request validation.Request) {
	if len(faults) == 0 || types == (instancetype.Types{}) {
		return
	}
	of := func(t instancetype.Types) sets.Set[string] {
		bare, _ := instancetype.Expand(vm, t)
		known, _ := validation.Machine(bare, nil, request)
		return texts(known)
	}
	own, sized := of(instancetype.Types{}), of(instancetype.Types{Instancetype: types.Instancetype})
	for _, f := range faults {
		switch {
		case own.Has(f.Error()):
		case types.Instancetype != nil && sized.Has(f.Error()):
			f.Detail += " (from instancetype " + vm.Spec.Instancetype.Name + ")"
		case types.Preference != nil:
			f.Detail += " (from preference " + vm.Spec.Preference.Name + ")"
		}
	}
}

// texts are what faults say, by which they are compared.
func texts(all field.ErrorList) sets.Set[string] {
	said := sets.New[string]()
	for _, f := range all {
		said.Insert(f.Error())
	}
	return said
}

func without(faults, earlier field.ErrorList) field.ErrorList {
	said := texts(earlier)
	return slices.DeleteFunc(faults, func(f *field.Error) bool { return said.Has(f.Error()) })
}

// answer refuses a VM for faults, by their fields.
func answer(vm *kubevirtv1.VirtualMachine, faults field.ErrorList) admission.Response {
	err := refused(kubevirtv1.Group, "VirtualMachine", vm.Name, faults)
	to := admission.Errored(http.StatusUnprocessableEntity, err)
	if status, is := err.(apierrors.APIStatus); is {
		to.Result = new(status.Status())
	}
	return to
}
