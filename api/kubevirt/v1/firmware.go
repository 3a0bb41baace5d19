package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Firmware is what a guest is booted by, and what that tells the guest.
type Firmware struct {
	// UUID in the guest's SMBIOS tables. Made with the VM if unset, and kept for its life.
	// +optional
	UUID types.UID `json:"uuid,omitempty"`
	// Serial number in the guest's SMBIOS tables. Made with the VM if unset.
	// +optional
	Serial string `json:"serial,omitempty"`
	// BIOS or UEFI.
	// +optional
	Bootloader *Bootloader `json:"bootloader,omitempty"`
	// A kernel that is booted in place of what is on the disks.
	// +optional
	KernelBoot *KernelBoot `json:"kernelBoot,omitempty"`
	// ACPI tables given to the guest.
	// +optional
	ACPI *ACPI `json:"acpi,omitempty"`
}

// Bootloader is BIOS or UEFI.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.bios) && has(self.efi))",message="at most one of bios and efi may be set"
type Bootloader struct {
	// Boot by BIOS.
	// +optional
	BIOS *BIOS `json:"bios,omitempty"`
	// Boot by UEFI.
	// +optional
	EFI *EFI `json:"efi,omitempty"`
}

// BIOS is how the guest is booted by BIOS.
type BIOS struct {
	// Whether the BIOS writes to the serial console.
	// +optional
	UseSerial *bool `json:"useSerial,omitempty"`
}

// EFI is how the guest is booted by UEFI.
type EFI struct {
	// Whether the firmware starts signed programs alone. Needs features.smm. Defaults to true
	// on amd64.
	// +optional
	SecureBoot *bool `json:"secureBoot,omitempty"`
	// Whether the firmware's variables outlive the instance.
	// +optional
	Persistent *bool `json:"persistent,omitempty"`
}

// KernelBoot is a kernel that is booted in place of what is on the disks.
type KernelBoot struct {
	// The kernel's command line.
	// +optional
	KernelArgs string `json:"kernelArgs,omitempty"`
	// The image that has kernel and initrd.
	// +optional
	Container *KernelBootContainer `json:"container,omitempty"`
}

// KernelBootContainer is an image that has a kernel, an initrd or both.
type KernelBootContainer struct {
	// Reference of the image.
	Image string `json:"image"`
	// Name of the Secret to pull the image with.
	// +optional
	ImagePullSecret string `json:"imagePullSecret,omitempty"`
	// When the image is pulled: Always, IfNotPresent or Never. Defaults to Always for the tag
	// latest, else to IfNotPresent.
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// Path of the kernel in the image.
	// +optional
	KernelPath string `json:"kernelPath,omitempty"`
	// Path of the initrd in the image.
	// +optional
	InitrdPath string `json:"initrdPath,omitempty"`
}

// ACPI is ACPI tables that the guest is given.
type ACPI struct {
	// Name of the volume that has the SLIC table.
	// +optional
	SLICNameRef string `json:"slicNameRef,omitempty"`
	// Name of the volume that has the MSDM table.
	// +optional
	MSDMNameRef string `json:"msdmNameRef,omitempty"`
}
