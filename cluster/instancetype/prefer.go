package instancetype

import (
	"reflect"
	"slices"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// prefer fills what a VM leaves open. The preference is a copy, which becomes part of the VM.
func prefer(vm *kubevirtv1.VirtualMachineSpec, p *instancetypev1.VirtualMachinePreferenceSpec) {
	template := vm.Template
	s := &template.Spec
	if p.CPU != nil && len(p.CPU.PreferredCPUFeatures) > 0 {
		cpuFeatures(made(&s.Domain.CPU), p.CPU.PreferredCPUFeatures)
	}
	if p.Devices != nil {
		devices(s, p.Devices)
	}
	if p.Features != nil {
		features(&s.Domain, p.Features)
	}
	if p.Firmware != nil {
		firmware(&s.Domain, p.Firmware)
	}
	if p.Machine != nil && p.Machine.PreferredMachineType != "" {
		fill(&made(&s.Domain.Machine).Type, p.Machine.PreferredMachineType)
	}
	if p.Clock != nil {
		clock(&s.Domain, p.Clock)
	}
	if p.Volumes != nil && p.Volumes.PreferredStorageClassName != "" {
		storageClass(vm.DataVolumeTemplates, &p.Volumes.PreferredStorageClassName)
	}
	fillFrom(&s.Subdomain, p.PreferredSubdomain)
	fillPointer(&s.TerminationGracePeriodSeconds, p.PreferredTerminationGracePeriodSeconds)
	fillFrom(&s.Architecture, p.PreferredArchitecture)
	fillPointer(&s.Domain.LaunchSecurity, p.PreferredLaunchSecurity)
	for key, value := range p.Annotations {
		if _, set := template.Annotations[key]; !set {
			if template.Annotations == nil {
				template.Annotations = make(map[string]string)
			}
			template.Annotations[key] = value
		}
	}
}

// cpuFeatures adds those that the VM does not name.
func cpuFeatures(cpu *kubevirtv1.CPU, preferred []kubevirtv1.CPUFeature) {
	named := slices.Clone(cpu.Features)
	for _, f := range preferred {
		if !slices.ContainsFunc(named, func(own kubevirtv1.CPUFeature) bool { return own.Name == f.Name }) {
			cpu.Features = append(cpu.Features, f)
		}
	}
}

func features(d *kubevirtv1.DomainSpec, p *instancetypev1.FeaturePreferences) {
	f := made(&d.Features)
	if p.PreferredACPI != nil {
		fillPointer(&f.ACPI.Enabled, p.PreferredACPI.Enabled)
	}
	fillPointer(&f.APIC, p.PreferredAPIC)
	fillPointer(&f.KVM, p.PreferredKVM)
	fillPointer(&f.PVSpinlock, p.PreferredPVSpinlock)
	fillPointer(&f.SMM, p.PreferredSMM)
	if p.PreferredHyperv != nil {
		// Each enlightenment for itself: all are pointers.
		to, from := reflect.ValueOf(made(&f.Hyperv)).Elem(), reflect.ValueOf(p.PreferredHyperv).Elem()
		for i := range to.NumField() {
			if to.Field(i).IsNil() {
				to.Field(i).Set(from.Field(i))
			}
		}
	}
}

// firmware is the VM's, if it says by what it boots.
func firmware(d *kubevirtv1.DomainSpec, p *instancetypev1.FirmwarePreferences) {
	var own kubevirtv1.Bootloader
	if d.Firmware != nil && d.Firmware.Bootloader != nil {
		own = *d.Firmware.Bootloader
	}
	//lint:ignore SA1019 preferences still have them
	useEFI, secureBoot := p.PreferredUseEFI, p.PreferredUseSecureBoot
	if own.BIOS == nil && own.EFI == nil {
		switch {
		case isTrue(p.PreferredUseBIOS):
			own.BIOS = &kubevirtv1.BIOS{}
		case p.PreferredEFI != nil:
			own.EFI = p.PreferredEFI
		case isTrue(useEFI):
			own.EFI = &kubevirtv1.EFI{}
		default:
			return
		}
	}
	if own.BIOS != nil {
		fillPointer(&own.BIOS.UseSerial, p.PreferredUseBIOSSerial)
	}
	if own.EFI != nil && own.EFI != p.PreferredEFI {
		fillPointer(&own.EFI.SecureBoot, secureBoot)
	}
	made(&d.Firmware).Bootloader = &own
}

func isTrue(b *bool) bool { return b != nil && *b }

func clock(d *kubevirtv1.DomainSpec, p *instancetypev1.ClockPreferences) {
	if p.PreferredClockOffset == nil && p.PreferredTimer == nil {
		return
	}
	c := made(&d.Clock)
	if o := p.PreferredClockOffset; o != nil && c.UTC == nil && c.Timezone == nil {
		c.UTC, c.Timezone = o.UTC, o.Timezone
	}
	fillPointer(&c.Timer, p.PreferredTimer)
}

// storageClass is of claims that are made for the VM.
func storageClass(templates []kubevirtv1.DataVolumeTemplateSpec, name *string) {
	for i := range templates {
		if claim := templates[i].Spec.PVC; claim != nil {
			fillPointer(&claim.StorageClassName, name)
		}
		if storage := templates[i].Spec.Storage; storage != nil {
			fillPointer(&storage.StorageClassName, name)
		}
	}
}

// fill sets what is not set.
func fill[T comparable](field *T, value T) {
	var none T
	if *field == none {
		*field = value
	}
}

// fillFrom is fill by what may not be there.
func fillFrom[T comparable](field *T, value *T) {
	if value != nil {
		fill(field, *value)
	}
}

func fillPointer[T any](field **T, value *T) {
	if *field == nil {
		*field = value
	}
}
