package validation

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/multus"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/spec"
)

// annotationTable has the annotations of instances that have a meaning to vmlet or KubeVirt.
func annotationTable() []Field {
	return []Field{
		{contract.AnnotationVMM, Supported, allVMMs, "the VMM that runs the VM: auto (the default), qemu or cloud-hypervisor"},
		{contract.AnnotationHypervisor, Supported, allVMMs, "the hypervisor that runs it: kvm, mshv, emulation, or auto, the first of them that some node offers; default: hypervisorConfiguration of the KubeVirt object, else kvm (with useEmulation: emulation)"},
		{contract.AnnotationDiskSize + "VOLUME", Supported, allVMMs, "how large the guest sees the container disk or ephemeral volume VOLUME, not less than its image: 20Gi"},
		{contract.AnnotationVhostNet, Supported, onlyQEMU, "true: the node's kernel moves the packets of virtio interfaces, where it offers devices.kubevirt.io/vhost-net; the VM runs on no other node"},
		{multus.AnnotationNetworks, Supported, allVMMs, "networks of the pod alone, which the guest doesn't see; refused beside networks[].multus"},
		{multus.AnnotationDefault, Supported, allVMMs, "the pod's default network; refused beside networks[].multus.default"},
		{contract.AnnotationPauseProbes, Supported, onlyQEMU, "true: exec and guestAgentPing probes are left out of the pod; read when the instance gets its pod"},
		{"hooks.kubevirt.io/hookSidecars", Refused, "", "hook sidecars change libvirt's domain, which vmlet has not: remove the annotation"},
		{"kubevirt.io/ignitiondata", Refused, "", "ignition data is not supported: use a cloudInitConfigDrive volume, whose user data Ignition reads"},
		{"kubevirt.io/libvirt-log-filters", Ignored, "", "vmlet has no libvirt"},
		{"smbios.vm.kubevirt.io/baseBoardManufacturer", Ignored, "", "it is read by a hook sidecar"},
		{"kubevirt.io/disablePCIHole64", Ignored, "", "the guest has the machine type's address space"},
		{"kubevirt.io/placePCIDevicesOnRootComplex", Ignored, "", "vmlet gives PCI addresses"},
		{"kubevirt.io/keep-launcher-alive-after-failure", Ignored, "", "the pod ends with its VM, and its log stays until the instance is deleted"},
		{"kubevirt.io/free-page-reporting-disabled", Ignored, "", "QEMU's balloons report free pages, for all VMs"},
		{"kubevirt.io/vga-display-efi-x86", Ignored, "", "set domain.devices.video.type to vga"},
		{contract.AnnotationEvenCPUs, Supported, allVMMs, "with isolateEmulatorThread the VMM's other threads have two CPUs where that makes the pod's an even number; also of the KubeVirt object, for all VMs"},
	}
}

// annotations checks those that choose VMM and hypervisor, and the table's.
func (r Request) annotations(all map[string]string, s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (faults field.ErrorList, warnings []string) {
	for _, row := range annotationTable() {
		value, set := all[row.Path]
		switch {
		case !set:
		case row.Support == Refused:
			faults = append(faults, field.Forbidden(at.Key(row.Path), row.Note))
		case row.Support == Ignored:
			warnings = append(warnings, at.Key(row.Path).String()+" is ignored: "+row.Note)
		case row.Path == contract.AnnotationVMM:
			faults = append(faults, oneOf(value, withAuto(r.VMMs), at.Key(row.Path))...)
		case row.Path == contract.AnnotationHypervisor:
			faults = append(faults, oneOf(value, withAuto(r.Hypervisors), at.Key(row.Path))...)
		case row.Path == contract.AnnotationVhostNet, row.Path == contract.AnnotationPauseProbes:
			faults = append(faults, oneOf(value, []string{"true", "false"}, at.Key(row.Path))...)
		}
	}
	faults = append(faults, diskSizes(all, s.Volumes, at)...)
	return append(faults, multusAnnotations(all, s.Networks, at)...), warnings
}

// diskSizes checks the sizes of overlays.
func diskSizes(all map[string]string, volumes []kubevirtv1.Volume, at *field.Path) (faults field.ErrorList) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		name, is := strings.CutPrefix(key, contract.AnnotationDiskSize)
		if !is {
			continue
		}
		if !slices.ContainsFunc(volumes, func(v kubevirtv1.Volume) bool {
			return v.Name == name && (v.ContainerDisk != nil || v.Ephemeral != nil)
		}) {
			faults = append(faults, field.Invalid(at.Key(key), short(all[key]), "there is no containerDisk and no ephemeral volume of this name: other disks are as large as their claims or capacities"))
		}
		if q, err := resource.ParseQuantity(all[key]); err != nil || q.Sign() <= 0 {
			faults = append(faults, field.Invalid(at.Key(key), short(all[key]), "want a size, such as 20Gi"))
		}
	}
	return faults
}

func withAuto(names []string) []string { return append([]string{spec.Auto}, names...) }

// reservedLabels refuses that a user sets, changes or removes labels that controllers go by.
func reservedLabels(labels, old map[string]string, at *field.Path) (faults field.ErrorList) {
	for _, name := range controllerLabels() {
		value, set := labels[name]
		before, was := old[name]
		if set != was || value != before {
			faults = append(faults, field.Forbidden(at.Key(name), "the label is set by controllers alone: leave it as it is"))
		}
	}
	return faults
}

// controllerLabels are labels of an instance that users don't set.
func controllerLabels() []string {
	return []string{
		contract.LabelCreatedBy, contract.LabelNodeName, contract.LabelSchedulable,
		"kubevirt.io/install-strategy", "kubevirt.io/migrationJobUID", "kubevirt.io/migrationTargetNodeName",
	}
}
