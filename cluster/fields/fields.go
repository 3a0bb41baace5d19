// Package fields has the table of the API's fields: for each what vmlet does with it. Validation and the document come
// from it (pure). Start reading at Field, then at Instance.
package fields

import "slices"

// Support says what vmlet does with a field.
type Support string

// The kinds of support.
const (
	Supported Support = "supported"
	Refused   Support = "refused" // an object that sets the field is refused
	Ignored   Support = "ignored" // accepted with a warning: the guest doesn't depend on it
)

// The VMMs that can do what a field asks for.
const (
	AllVMMs  = "all"
	OnlyQEMU = "QEMU"
)

// Field says what vmlet does with a field of the API. A field that is refused or ignored
// stands for all that is below it; one that is supported, for itself alone.
type Field struct {
	// Path below the object's spec, such as volumes[].containerDisk.image. With "=VALUE" at
	// its end the row is about this value of the field alone; with ".*" it is about all
	// that is below.
	Path    string
	Support Support
	// VMM that can do what the field asks for, of fields that are supported.
	VMM string
	// Note is for users: why the field is refused or ignored and what to do instead, or
	// what else there is to know of it.
	Note string
}

// Machine are the fields of a VirtualMachine's spec but for those below
// template.spec, in the order of the documentation.
func Machine() []Field {
	const kind = "in any case, singular or plural; the cluster-wide one if unset"
	const inferred = "its name and kind are written in its place when the VM is created"
	return []Field{
		{"running", Supported, AllVMMs, "deprecated: use runStrategy; true is Always, false is Halted"},
		{"runStrategy", Supported, AllVMMs, ""},
		{"runStrategy=WaitAsReceiver", Refused, "", "migration between clusters is not supported: use Halted until the disks are here, then Always"},
		{"hibernateStrategy.mode", Supported, AllVMMs, "Save or SuspendToDisk; the cluster's if unset"},
		{"hibernateStrategy.warningTimeoutSeconds", Supported, AllVMMs, "an event is made then, and the hibernation goes on"},
		{"hibernateStrategy.claimName", Supported, AllVMMs, "with volumeMode Filesystem, of this VM alone; made if unset"},
		{"hibernateStrategy.storageClassName", Supported, AllVMMs, "of a claim that is made"},
		{"hibernateStrategy.timeoutSeconds", Refused, "", "it is written warningTimeoutSeconds"},
		{"HibernateStrategy", Refused, "", "it is written hibernateStrategy"},
		{"startStrategy", Supported, AllVMMs, "Restore or Boot, which discards the saved memory; template.spec.startStrategy starts paused"},
		{"StartStrategy", Refused, "", "it is written startStrategy"},
		{"instancetype.name", Supported, AllVMMs, ""},
		{"instancetype.kind", Supported, AllVMMs, kind},
		{"instancetype.revisionName", Supported, AllVMMs, "a ControllerRevision of the VM's namespace"},
		{"instancetype.inferFromVolume", Supported, AllVMMs, inferred},
		{"instancetype.inferFromVolumeFailurePolicy", Supported, AllVMMs, ""},
		{"preference.name", Supported, AllVMMs, ""},
		{"preference.kind", Supported, AllVMMs, kind},
		{"preference.revisionName", Supported, AllVMMs, "a ControllerRevision of the VM's namespace"},
		{"preference.inferFromVolume", Supported, AllVMMs, inferred},
		{"preference.inferFromVolumeFailurePolicy", Supported, AllVMMs, ""},
		{"template.metadata", Supported, AllVMMs, "labels and annotations reach the instance and its pod"},
		{"dataVolumeTemplates[].apiVersion", Supported, AllVMMs, "has no effect, as with KubeVirt"},
		{"dataVolumeTemplates[].kind", Supported, AllVMMs, "has no effect, as with KubeVirt"},
		{"dataVolumeTemplates[].metadata", Supported, AllVMMs, ""},
		{"dataVolumeTemplates[].spec.*", Supported, AllVMMs, "CDI carries it out where it is installed; else vmlet does: see imports.md for what it imports"},
		{"dataVolumeTemplates[].status", Supported, AllVMMs, "has no effect, as with KubeVirt"},
		{"updateVolumesStrategy", Supported, AllVMMs, "Replacement: an exchanged volume counts from the next start on"},
		{"updateVolumesStrategy=Migration", Refused, "", "volumes of a running VM are not migrated: use Replacement, and restart the VM"},
	}
}

// Instance are the fields of a VirtualMachineInstance's spec, which are those of a
// VirtualMachine's template.spec as well, in the order of the documentation.
func Instance() []Field {
	return slices.Concat(processorFields(), machineTypeFields(), featureFields(), deviceFields(), volumeFields(), networkFields(), podFields())
}

func processorFields() []Field {
	return []Field{
		{"domain.cpu.sockets", Supported, AllVMMs, ""},
		{"domain.cpu.cores", Supported, AllVMMs, ""},
		{"domain.cpu.threads", Supported, AllVMMs, "cloud-hypervisor: at most 2"},
		{"domain.cpu.maxSockets", Supported, AllVMMs, "sockets can be added while the VM runs, up to these"},
		{"domain.cpu.model", Supported, AllVMMs, "named models: QEMU; host-model and host-passthrough both give the guest the node's processor"},
		{"domain.cpu.features[].name", Supported, OnlyQEMU, ""},
		{"domain.cpu.features[].policy", Supported, OnlyQEMU, ""},
		{"domain.cpu.dedicatedCpuPlacement", Supported, AllVMMs, "each vCPU has one of the node's CPUs to itself, where the kubelet's CPU manager is static; not with sockets that are added while the VM runs"},
		{"domain.cpu.isolateEmulatorThread", Supported, AllVMMs, "the VMM's other threads have a CPU of their own"},
		{"domain.cpu.numa.guestMappingPassthrough", Supported, OnlyQEMU, "the guest has the NUMA nodes that its CPUs and memory are on; with dedicatedCpuPlacement and memory.hugepages; on more than one node QEMU 8.1 or later"},
		{"domain.cpu.realtime", Refused, "", "nothing in a pod may raise a thread's priority: leave it out; dedicatedCpuPlacement with isolateEmulatorThread keeps others off the guest's CPUs"},
		{"domain.memory.guest", Supported, AllVMMs, ""},
		{"domain.memory.maxGuest", Refused, "", "a running VM gets no more memory than it was started with: leave it out, and restart the VM to give it more"},
		{"domain.memory.hugepages.pageSize", Supported, AllVMMs, "2Mi or 1Gi; the guest's memory must be a multiple of it, and its pod requests hugepages-2Mi or hugepages-1Gi"},
		{"domain.memory.reservedOverhead", Refused, "", "the pod has what the VMM was measured to need: leave it out, or raise additionalGuestMemoryOverheadRatio in the KubeVirt object"},
		{"domain.resources.requests", Supported, AllVMMs, "but hugepages-*"},
		{"domain.resources.limits", Supported, AllVMMs, "but hugepages-*"},
		{"domain.resources.overcommitGuestOverhead", Refused, "", "the VMM's own memory is always requested: leave it out, or set resources.requests.memory below memory.guest"},
	}
}

func machineTypeFields() []Field {
	const chassis = "the guest sees the chassis of the VMM: leave it out"
	const hpet = "late ticks of the HPET are delayed: use delay"
	return []Field{
		{"domain.machine.type", Supported, OnlyQEMU, "one of emulatedMachines in the KubeVirt object; those of Red Hat's QEMU (pc-q35-rhel9.4.0) are q35"},
		{"domain.firmware.uuid", Supported, AllVMMs, "made with the VirtualMachine if unset"},
		{"domain.firmware.serial", Supported, AllVMMs, "made with the VirtualMachine if unset"},
		{"domain.firmware.bootloader.bios.useSerial", Ignored, "", "the BIOS writes to the screen alone; what the guest writes to its serial console is shown"},
		{"domain.firmware.bootloader.efi.secureBoot", Supported, AllVMMs, "false; on amd64 it has to be set, as KubeVirt's default is true"},
		{"domain.firmware.bootloader.efi.secureBoot=true", Refused, "", "Secure Boot is not supported yet: set it to false"},
		{"domain.firmware.bootloader.efi.persistent", Refused, "", "UEFI variables are not kept over restarts yet: leave it out"},
		{"domain.firmware.kernelBoot.kernelArgs", Supported, AllVMMs, ""},
		{"domain.firmware.kernelBoot.container.image", Supported, AllVMMs, ""},
		{"domain.firmware.kernelBoot.container.imagePullSecret", Supported, AllVMMs, ""},
		{"domain.firmware.kernelBoot.container.imagePullPolicy", Supported, AllVMMs, ""},
		{"domain.firmware.kernelBoot.container.kernelPath", Supported, AllVMMs, ""},
		{"domain.firmware.kernelBoot.container.initrdPath", Supported, AllVMMs, "without kernelPath the guest boots from its disks"},
		{"domain.firmware.acpi", Refused, "", "ACPI tables of volumes are not supported: leave it out"},
		{"domain.chassis.manufacturer", Refused, "", chassis},
		{"domain.chassis.version", Refused, "", chassis},
		{"domain.chassis.serial", Refused, "", chassis},
		{"domain.chassis.asset", Supported, OnlyQEMU, ""},
		{"domain.chassis.sku", Refused, "", chassis},
		{"domain.clock.utc.offsetSeconds", Supported, OnlyQEMU, ""},
		{"domain.clock.timezone", Supported, OnlyQEMU, ""},
		{"domain.clock.timer.hpet.present", Supported, AllVMMs, "true: QEMU"},
		{"domain.clock.timer.hpet.tickPolicy", Supported, OnlyQEMU, "delay"},
		{"domain.clock.timer.hpet.tickPolicy=catchup", Refused, "", hpet},
		{"domain.clock.timer.hpet.tickPolicy=merge", Refused, "", hpet},
		{"domain.clock.timer.hpet.tickPolicy=discard", Refused, "", hpet},
		{"domain.clock.timer.kvm.present", Supported, AllVMMs, "false: QEMU"},
		{"domain.clock.timer.pit.present", Supported, AllVMMs, "true: QEMU"},
		{"domain.clock.timer.pit.tickPolicy", Supported, OnlyQEMU, ""},
		{"domain.clock.timer.rtc.present", Supported, AllVMMs, ""},
		{"domain.clock.timer.rtc.present=false", Refused, "", "a machine can't be without its clock: leave it out"},
		{"domain.clock.timer.rtc.tickPolicy", Supported, OnlyQEMU, ""},
		{"domain.clock.timer.rtc.track", Supported, AllVMMs, "guest: QEMU"},
		{"domain.clock.timer.hyperv.present", Supported, AllVMMs, "true: QEMU"},
		{"domain.launchSecurity", Refused, "", "confidential VMs are not supported: leave it out"},
		{"domain.rebootPolicy", Supported, AllVMMs, "Terminate: QEMU"},
	}
}

func featureFields() []Field {
	fields := []Field{
		{"domain.features.acpi.enabled", Supported, AllVMMs, "false: QEMU, and not with UEFI"},
		{"domain.features.apic.enabled", Supported, AllVMMs, "true"},
		{"domain.features.apic.enabled=false", Refused, "", "machines can't be without it, as their devices interrupt by it: leave it out"},
		{"domain.features.apic.endOfInterrupt", Ignored, "", "the VMM signals ends of interrupts as the processor can"},
		{"domain.features.smm.enabled", Supported, AllVMMs, "true: QEMU on amd64"},
		{"domain.features.kvm.hidden", Supported, AllVMMs, "true: QEMU"},
		{"domain.features.pvspinlock.enabled", Supported, OnlyQEMU, ""},
		{"domain.features.hypervPassthrough.enabled", Supported, OnlyQEMU, ""},
	}
	for _, name := range []string{
		"relaxed.enabled", "vapic.enabled", "spinlocks.enabled", "spinlocks.spinlocks", "vpindex.enabled", "runtime.enabled",
		"synic.enabled", "synictimer.enabled", "synictimer.direct.enabled", "reset.enabled", "vendorid.enabled", "vendorid.vendorid",
		"frequencies.enabled", "reenlightenment.enabled", "tlbflush.enabled", "tlbflush.direct.enabled", "tlbflush.extended.enabled",
		"ipi.enabled", "evmcs.enabled",
	} {
		fields = append(fields, Field{"domain.features.hyperv." + name, Supported, OnlyQEMU, ""})
	}
	return fields
}

func podFields() []Field {
	fields := []Field{
		{"startStrategy", Supported, AllVMMs, ""},
		{"startStrategy=Restore", Refused, "", "the controller alone writes it: set startStrategy of the VirtualMachine"},
		{"restoreFrom", Refused, "", "the controller alone writes it: leave it out"},
		{"stopStrategy", Refused, "", "the controller alone writes it: set runStrategy: Hibernate in the VirtualMachine"},
		{"evictionStrategy", Supported, AllVMMs, "Hibernate saves the guest and has it go on elsewhere, of a VirtualMachine; no VM is live-migrated: with LiveMigrate its eviction is denied, LiveMigrateIfPossible acts as None"},
		{"terminationGracePeriodSeconds", Supported, AllVMMs, ""},
	}
	for _, probe := range []string{"livenessProbe", "readinessProbe"} {
		fields = append(fields,
			Field{probe + ".exec", Supported, OnlyQEMU, "the guest agent runs it; it prints 40 KiB at most. Succeeds while the guest's file systems are frozen"},
			Field{probe + ".guestAgentPing", Supported, OnlyQEMU, "succeeds while the guest is paused"})
		for _, name := range []string{"httpGet", "tcpSocket", "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"} {
			fields = append(fields, Field{probe + "." + name, Supported, AllVMMs, ""})
		}
	}
	for _, name := range []string{
		"hostname", "subdomain", "dnsPolicy", "dnsConfig", "architecture", "priorityClassName", "nodeSelector", "affinity",
		"schedulerName", "serviceAccountName", "tolerations", "topologySpreadConstraints",
	} {
		fields = append(fields, Field{name, Supported, AllVMMs, ""})
	}
	return append(fields,
		Field{"accessCredentials[].sshPublicKey.source.secret.secretName", Supported, AllVMMs, ""},
		Field{"accessCredentials[].sshPublicKey.propagationMethod.noCloud", Supported, AllVMMs, ""},
		Field{"accessCredentials[].sshPublicKey.propagationMethod.configDrive", Supported, AllVMMs, ""},
		Field{"accessCredentials[].sshPublicKey.propagationMethod.qemuGuestAgent.users", Supported, OnlyQEMU, "these users log in with the Secret's keys alone; a change of the Secret reaches the guest within a minute or two"},
		Field{"accessCredentials[].userPassword.source.secret.secretName", Supported, OnlyQEMU, ""},
		Field{"accessCredentials[].userPassword.propagationMethod.qemuGuestAgent", Supported, OnlyQEMU, ""},
		Field{"resourceClaims", Refused, "", "devices of resource claims are not supported: leave it out"},
		Field{"utilityVolumes", Refused, "", "the controller alone writes it: leave it out"},
	)
}
