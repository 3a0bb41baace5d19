package fields

import (
	"github.com/vmlet/vmlet/cluster/multus"
	"github.com/vmlet/vmlet/contract"
)

// Annotations are those of instances that have a meaning to vmlet or KubeVirt.
func Annotations() []Field {
	return []Field{
		{contract.AnnotationVMM, Supported, AllVMMs, "the VMM that runs the VM: auto (the default), qemu or cloud-hypervisor"},
		{contract.AnnotationHypervisor, Supported, AllVMMs, "the hypervisor that runs it: kvm, mshv, emulation, or auto, the first of them that some node offers; default: hypervisorConfiguration of the KubeVirt object, else kvm (with useEmulation: emulation)"},
		{contract.AnnotationDiskSize + "VOLUME", Supported, AllVMMs, "how large the guest sees the container disk or ephemeral volume VOLUME, not less than its image: 20Gi"},
		{contract.AnnotationVhostNet, Supported, OnlyQEMU, "true: the node's kernel moves the packets of virtio interfaces, where it offers devices.kubevirt.io/vhost-net; the VM runs on no other node"},
		{multus.AnnotationNetworks, Supported, AllVMMs, "networks of the pod alone, which the guest doesn't see; refused beside networks[].multus"},
		{multus.AnnotationDefault, Supported, AllVMMs, "the pod's default network; refused beside networks[].multus.default"},
		{contract.AnnotationPauseProbes, Supported, OnlyQEMU, "true: exec and guestAgentPing probes are left out of the pod; read when the instance gets its pod"},
		{"hooks.kubevirt.io/hookSidecars", Refused, "", "hook sidecars change libvirt's domain, which vmlet has not: remove the annotation"},
		{"kubevirt.io/ignitiondata", Refused, "", "ignition data is not supported: use a cloudInitConfigDrive volume, whose user data Ignition reads"},
		{"kubevirt.io/libvirt-log-filters", Ignored, "", "vmlet has no libvirt"},
		{"smbios.vm.kubevirt.io/baseBoardManufacturer", Ignored, "", "it is read by a hook sidecar"},
		{"kubevirt.io/disablePCIHole64", Ignored, "", "the guest has the machine type's address space"},
		{"kubevirt.io/placePCIDevicesOnRootComplex", Ignored, "", "vmlet gives PCI addresses"},
		{"kubevirt.io/keep-launcher-alive-after-failure", Ignored, "", "the pod ends with its VM, and its log stays until the instance is deleted"},
		{"kubevirt.io/free-page-reporting-disabled", Ignored, "", "QEMU's balloons report free pages, for all VMs"},
		{"kubevirt.io/vga-display-efi-x86", Ignored, "", "set domain.devices.video.type to vga"},
		{contract.AnnotationEvenCPUs, Supported, AllVMMs, "with isolateEmulatorThread the VMM's other threads have two CPUs where that makes the pod's an even number; also of the KubeVirt object, for all VMs"},
	}
}
