package validation

import (
	"path"
	"slices"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/spec"
)

// maxSerial is how many bytes of a serial number SMBIOS tables take, as KubeVirt has it.
const maxSerial = 256

// architecture returns the instance's or else the cluster's.
func (r Request) architecture(s *kubevirtv1.VirtualMachineInstanceSpec) string {
	if s.Architecture != "" {
		return s.Architecture
	}
	return r.Configuration.DefaultArchitecture
}

// machineType checks architecture and machine type.
func (r Request) machineType(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	if faults := oneOf(s.Architecture, []string{spec.ArchAMD64, spec.ArchARM64}, at.Child("architecture")); len(faults) > 0 {
		return faults
	}
	if s.Domain.Machine == nil || s.Domain.Machine.Type == "" {
		return nil
	}
	name, globs := s.Domain.Machine.Type, r.Configuration.EmulatedMachines[r.architecture(s)]
	machine := at.Child("domain", "machine", "type")
	if r.Configuration.Emulates(r.architecture(s), name) {
		return labelPart(name, machine)
	}
	return field.ErrorList{field.Invalid(machine, short(name), "want one of the machine types that the KubeVirt object allows on "+r.architecture(s)+": "+strings.Join(globs, ", "))}
}

// onARM refuses what machines of arm64 have not.
func (r Request) onARM(s *kubevirtv1.VirtualMachineInstanceSpec, domain *field.Path) (faults field.ErrorList) {
	if r.architecture(s) != spec.ArchARM64 {
		return nil
	}
	const advice = "machines of arm64 have none: leave it out"
	if f := s.Domain.Firmware; f != nil && f.Bootloader != nil && f.Bootloader.BIOS != nil {
		faults = append(faults, field.Forbidden(domain.Child("firmware", "bootloader", "bios"), advice))
	}
	if f := s.Domain.Features; f != nil && enabled(f.SMM) {
		faults = append(faults, field.Forbidden(domain.Child("features", "smm"), advice))
	}
	if c := s.Domain.Clock; c != nil && c.Timer != nil {
		if t := c.Timer.HPET; t != nil && (t.Present == nil || *t.Present) {
			faults = append(faults, field.Forbidden(domain.Child("clock", "timer", "hpet"), advice))
		}
		if t := c.Timer.PIT; t != nil && (t.Present == nil || *t.Present || t.TickPolicy != "") {
			faults = append(faults, field.Forbidden(domain.Child("clock", "timer", "pit"), advice))
		}
	}
	for i, d := range s.Domain.Devices.Disks {
		if diskBus(d) == kubevirtv1.DiskBusSATA {
			faults = append(faults, field.Invalid(domain.Child("devices", "disks").Index(i), d.Name, "machines of arm64 have no bus sata: use virtio, scsi or usb"))
		}
	}
	return faults
}

func (r Request) firmware(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (faults field.ErrorList) {
	f := s.Domain.Firmware
	if f == nil {
		return nil
	}
	if f.UUID != "" {
		if _, err := uuid.Parse(string(f.UUID)); err != nil || len(f.UUID) != 36 {
			faults = append(faults, field.Invalid(at.Child("uuid"), short(f.UUID), "want a UUID such as 5d307ca9-b3ef-428c-8861-06e72d69f223"))
		}
	}
	if len(f.Serial) > maxSerial {
		faults = append(faults, field.TooLong(at.Child("serial"), "", maxSerial))
	}
	if b, o := f.Bootloader, s.Domain.Features; b != nil && b.EFI != nil && f.KernelBoot == nil && o != nil && turnedOff(&o.ACPI) {
		faults = append(faults, field.Forbidden(at.Child("bootloader", "efi"), "UEFI needs ACPI, and features.acpi.enabled is false: leave one of the two out"))
	}
	if b := f.Bootloader; b != nil && b.EFI != nil && b.EFI.SecureBoot == nil && r.architecture(s) == spec.ArchAMD64 {
		faults = append(faults, field.Required(at.Child("bootloader", "efi", "secureBoot"), "its default is true, and Secure Boot is not supported yet: set it to false"))
	}
	return append(faults, kernelBoot(f.KernelBoot, at.Child("kernelBoot"))...)
}

func kernelBoot(k *kubevirtv1.KernelBoot, at *field.Path) (faults field.ErrorList) {
	if k == nil {
		return nil
	}
	c, container := k.Container, at.Child("container")
	if c == nil {
		if k.KernelArgs != "" {
			faults = append(faults, field.Required(container, "kernelArgs are a kernel's: name the image that has it"))
		}
		return faults
	}
	if len(k.KernelArgs) > spec.MaxCmdline {
		faults = append(faults, field.TooLong(at.Child("kernelArgs"), "", spec.MaxCmdline))
	}
	faults = append(faults, image(c.Image, container.Child("image"))...)
	faults = append(faults, pullPolicy(c.ImagePullPolicy, container.Child("imagePullPolicy"))...)
	if c.KernelPath == "" && c.InitrdPath == "" {
		faults = append(faults, field.Required(container.Child("kernelPath"), "want the path of the kernel in the image, such as /boot/vmlinuz"))
	}
	faults = append(faults, cleanPath(c.KernelPath, container.Child("kernelPath"))...)
	return append(faults, cleanPath(c.InitrdPath, container.Child("initrdPath"))...)
}

func image(reference string, at *field.Path) field.ErrorList {
	switch {
	case reference == "":
		return field.ErrorList{field.Required(at, "want the reference of a container image")}
	case strings.TrimSpace(reference) != reference:
		return field.ErrorList{field.Invalid(at, short(reference), "a reference of an image has no white space around it")}
	}
	return nil
}

func pullPolicy(policy corev1.PullPolicy, at *field.Path) field.ErrorList {
	return oneOf(policy, []corev1.PullPolicy{corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}, at)
}

// cleanPath wants one that begins with '/' and stays in its image.
func cleanPath(name string, at *field.Path) field.ErrorList {
	switch {
	case name == "":
		return nil
	case len(name) > spec.MaxPath:
		return field.ErrorList{field.TooLong(at, "", spec.MaxPath)}
	case !path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), ".."):
		return field.ErrorList{field.Invalid(at, short(name), "want a path that begins with '/' and has no '..'")}
	}
	return nil
}

// maxVendorID is the size of the CPUID leaf that has it.
const maxVendorID = 12

// enabled says whether a feature is on: one that is named is unless it says otherwise.
func enabled(f *kubevirtv1.FeatureState) bool { return f != nil && (f.Enabled == nil || *f.Enabled) }

func turnedOff(f *kubevirtv1.FeatureState) bool { return f != nil && !enabled(f) }

func features(f *kubevirtv1.Features, at *field.Path) field.ErrorList {
	if f == nil || f.Hyperv == nil {
		return nil
	}
	h, hyperv := f.Hyperv, at.Child("hyperv")
	var faults field.ErrorList
	if p := f.HypervPassthrough; p != nil && (p.Enabled == nil || *p.Enabled) {
		faults = append(faults, field.Forbidden(hyperv, "hypervPassthrough is all of them: leave one of the two out"))
	}
	if v := h.VendorID; v != nil && len(v.VendorID) > maxVendorID {
		faults = append(faults, field.TooLong(hyperv.Child("vendorid", "vendorid"), "", maxVendorID))
	}
	// What is off here is on by default where another needs it.
	for _, need := range []struct {
		needs bool
		name  string
		what  *kubevirtv1.FeatureState
		other string
	}{
		{enabled(h.SyNIC), "synic", h.VPIndex, "vpindex"},
		{h.SyNICTimer != nil && enabled(&h.SyNICTimer.FeatureState), "synictimer", h.SyNIC, "synic"},
		{h.TLBFlush != nil && enabled(&h.TLBFlush.FeatureState), "tlbflush", h.VPIndex, "vpindex"},
		{enabled(h.IPI), "ipi", h.VPIndex, "vpindex"},
		{enabled(h.Reenlightenment), "reenlightenment", h.VPIndex, "vpindex"},
		{enabled(h.EVMCS), "evmcs", h.VAPIC, "vapic"},
	} {
		if need.needs && turnedOff(need.what) {
			faults = append(faults, field.Invalid(hyperv.Child(need.other, "enabled"), false, need.name+" needs it: leave it out or set it to true"))
		}
	}
	return faults
}
