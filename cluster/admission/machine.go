package admission

import (
	"context"
	"encoding/json"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/defaults"
	"github.com/vmlet/vmlet/cluster/instancetype/lookup"
)

// machineDefaults fills in what a VirtualMachine is given, and the names of the instancetype and
// preference that it has its volumes name, repairs what its definition would refuse, and changes nothing
// else: its spec is its user's, who compares it with his own copy. So the patch is not between the object as it
// was written and as it is decoded, which would write 1024Mi as 1Gi.
type machineDefaults struct {
	config  Configurations
	objects client.Reader
	decoder admission.Decoder
}

func (d machineDefaults) Handle(ctx context.Context, request admission.Request) admission.Response {
	vm := new(kubevirtv1.VirtualMachine)
	if err := d.decoder.Decode(request, vm); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if vm.DeletionTimestamp != nil || vm.Spec.Template == nil {
		return admission.Allowed("")
	}
	repaired, err := repairs(request.Object.Raw, vm)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	before, err := filledIn(vm)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if request.Operation == admissionv1.Update {
		old := new(kubevirtv1.VirtualMachine)
		if err := d.decoder.DecodeRaw(request.OldObject, old); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		defaults.KeepIdentity(vm, old)
	} else {
		c, err := d.config.Configuration(ctx)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		defaults.Machine(vm, c)
	}
	faults, err := lookup.Infer(ctx, d.objects, vm)
	switch {
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, err)
	case len(faults) > 0:
		return answer(vm, faults)
	}
	after, err := filledIn(vm)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	answer := admission.PatchResponseFromRaw(before, after)
	answer.Patches = append(repaired, answer.Patches...)
	return answer
}

// filledIn returns, as JSON, the fields of a VM that are filled in, and no other: a patch is made by
// comparing what is before and after.
func filledIn(vm *kubevirtv1.VirtualMachine) ([]byte, error) {
	few := kubevirtv1.VirtualMachine{Spec: kubevirtv1.VirtualMachineSpec{
		Instancetype: vm.Spec.Instancetype, Preference: vm.Spec.Preference,
		Template: new(kubevirtv1.VirtualMachineInstanceTemplateSpec),
	}}
	few.Name = "any" // or metadata that is empty would be added as a whole
	few.Finalizers, few.Annotations = vm.Finalizers, vm.Annotations
	if t := vm.Spec.Template; t != nil {
		few.Spec.Template.Spec.Domain.Firmware, few.Spec.Template.Spec.Domain.Memory = t.Spec.Domain.Firmware, t.Spec.Domain.Memory
	}
	return json.Marshal(few)
}
