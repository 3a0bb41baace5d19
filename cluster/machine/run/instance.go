// Package run is the instance of one run of a VirtualMachine: how it is made, the ControllerRevision that keeps
// what it was made from, and where it is in its life. It knows no run strategy (pure).
package run

import (
	"maps"
	"strconv"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instancetype"
	"github.com/vmlet/vmlet/contract"
)

// NewInstance returns the instance that the VM is to be started with now.
func NewInstance(vm *kubevirtv1.VirtualMachine, paused bool) *kubevirtv1.VirtualMachineInstance {
	template := vm.Spec.Template
	instance := &kubevirtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       vm.Namespace,
			Name:            vm.Name,
			Labels:          maps.Clone(template.Labels),
			Annotations:     map[string]string{},
			OwnerReferences: []metav1.OwnerReference{OwnedBy(vm)},
			Finalizers:      []string{contract.FinalizerMachine, contract.FinalizerInstance},
		},
		Spec: *template.Spec.DeepCopy(),
	}
	maps.Copy(instance.Annotations, template.Annotations)
	instance.Annotations[contract.AnnotationVMGeneration] = strconv.FormatInt(vm.Generation, 10)
	maps.Copy(instance.Annotations, instancetype.Annotations(vm))
	standsBy(instance, vm)
	Identify(&instance.Spec.Domain, vm.Name)
	if paused {
		strategy := kubevirtv1.StartPaused
		instance.Spec.StartStrategy = &strategy
	}
	return instance
}

// standsBy marks the instance of a VM that its pool has stand by: its pod is not to serve.
func standsBy(instance *kubevirtv1.VirtualMachineInstance, vm *kubevirtv1.VirtualMachine) {
	delete(instance.Labels, contract.LabelPoolStandby)
	if state := vm.Labels[contract.LabelPoolStandby]; state != "" {
		if instance.Labels == nil {
			instance.Labels = make(map[string]string)
		}
		instance.Labels[contract.LabelPoolStandby] = state
	}
}

// Identify gives a guest that has none the UUID that KubeVirt would, and a serial number. It
// returns whether it did. Both follow from the VM's name: no matter who fills them in, and however
// often, the guest has the same.
func Identify(domain *kubevirtv1.DomainSpec, name string) (changed bool) {
	space := uuid.UUID{0x6a, 0x1a, 0x24, 0xa1, 0x40, 0x61, 0x46, 0x07, 0x8b, 0xf4, 0xa3, 0x96, 0x3d, 0x0c, 0x58, 0x95}
	if domain.Firmware == nil {
		domain.Firmware = &kubevirtv1.Firmware{}
	}
	if domain.Firmware.UUID == "" {
		domain.Firmware.UUID = types.UID(uuid.NewSHA1(space, []byte(name)).String())
		changed = true
	}
	if domain.Firmware.Serial == "" {
		domain.Firmware.Serial = uuid.NewSHA1(space, []byte("serial of "+name)).String()
		changed = true
	}
	return changed
}

// ClaimNames returns the names of the claims that the VM's volumes are on, in order and
// without the dataVolumeTemplates that no volume uses.
func ClaimNames(vm *kubevirtv1.VirtualMachine) []string {
	if vm.Spec.Template == nil {
		return nil
	}
	var names []string
	for _, v := range vm.Spec.Template.Spec.Volumes {
		switch {
		case v.DataVolume != nil:
			names = append(names, v.DataVolume.Name)
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil && v.Ephemeral.PersistentVolumeClaim != nil:
			names = append(names, v.Ephemeral.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}
