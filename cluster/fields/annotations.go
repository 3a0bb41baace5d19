package fields

import (
	"github.com/vmlet/vmlet/cluster/multus"
	"github.com/vmlet/vmlet/contract"
)

// Annotations are those of instances that have a meaning to vmlet or KubeVirt.
func Annotations() []Field {
	return []Field{
		all(contract.AnnotationVMM, "the VMM that runs the VM: auto (the default), qemu or cloud-hypervisor").is("vmm"),
		all(contract.AnnotationHypervisor, "the hypervisor that runs it: kvm, mshv, emulation, or auto, the first of them that some node offers; default: hypervisorConfiguration of the KubeVirt object, else kvm (with useEmulation: emulation)").is("hypervisor"),
		all(contract.AnnotationDiskSize+"VOLUME", "how large the guest sees the container disk or ephemeral volume VOLUME, not less than its image: 20Gi"),
		qemu(contract.AnnotationVhostNet, "true: the node's kernel moves the packets of virtio interfaces, where it offers devices.kubevirt.io/vhost-net; the VM runs on no other node"),
		all(multus.AnnotationNetworks, "networks of the pod alone, which the guest doesn't see; refused beside networks[].multus"),
		all(multus.AnnotationDefault, "the pod's default network; refused beside networks[].multus.default"),
		qemu(contract.AnnotationPauseProbes, "true: exec and guestAgentPing probes are left out of the pod; read when the instance gets its pod"),
		refused("hooks.kubevirt.io/hookSidecars", "hook sidecars change libvirt's domain, which vmlet has not: remove the annotation"),
		refused("kubevirt.io/ignitiondata", "ignition data is not supported: use a cloudInitConfigDrive volume, whose user data Ignition reads"),
		ignored("kubevirt.io/libvirt-log-filters", "vmlet has no libvirt"),
		ignored("smbios.vm.kubevirt.io/baseBoardManufacturer", "it is read by a hook sidecar"),
		ignored("kubevirt.io/disablePCIHole64", "the guest has the machine type's address space"),
		ignored("kubevirt.io/placePCIDevicesOnRootComplex", "vmlet gives PCI addresses"),
		ignored("kubevirt.io/keep-launcher-alive-after-failure", "the pod ends with its VM, and its log stays until the instance is deleted"),
		ignored("kubevirt.io/free-page-reporting-disabled", "QEMU's balloons report free pages, for all VMs"),
		ignored("kubevirt.io/vga-display-efi-x86", "set domain.devices.video.type to vga"),
		all(contract.AnnotationEvenCPUs, "with isolateEmulatorThread the VMM's other threads have two CPUs where that makes the pod's an even number; also of the KubeVirt object, for all VMs"),
	}
}
