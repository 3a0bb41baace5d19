package validation

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
	allVMMs  = "all"
	onlyQEMU = "QEMU"
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

// MachineFields are the fields of a VirtualMachine's spec but for those below
// template.spec, in the order of the documentation.
func MachineFields() []Field {
	const kind = "in any case, singular or plural; the cluster-wide one if unset"
	const inferred = "its name and kind are written in its place when the VM is created"
	return []Field{
		{"running", Supported, allVMMs, "deprecated: use runStrategy; true is Always, false is Halted"},
		{"runStrategy", Supported, allVMMs, ""},
		{"runStrategy=WaitAsReceiver", Refused, "", "migration between clusters is not supported: use Halted until the disks are here, then Always"},
		{"hibernateStrategy.mode", Supported, allVMMs, "Save or SuspendToDisk; the cluster's if unset"},
		{"hibernateStrategy.warningTimeoutSeconds", Supported, allVMMs, "an event is made then, and the hibernation goes on"},
		{"hibernateStrategy.claimName", Supported, allVMMs, "with volumeMode Filesystem, of this VM alone; made if unset"},
		{"hibernateStrategy.storageClassName", Supported, allVMMs, "of a claim that is made"},
		{"hibernateStrategy.timeoutSeconds", Refused, "", "it is written warningTimeoutSeconds"},
		{"HibernateStrategy", Refused, "", "it is written hibernateStrategy"},
		{"startStrategy", Supported, allVMMs, "Restore or Boot, which discards the saved memory; template.spec.startStrategy starts paused"},
		{"StartStrategy", Refused, "", "it is written startStrategy"},
		{"instancetype.name", Supported, allVMMs, ""},
		{"instancetype.kind", Supported, allVMMs, kind},
		{"instancetype.revisionName", Supported, allVMMs, "a ControllerRevision of the VM's namespace"},
		{"instancetype.inferFromVolume", Supported, allVMMs, inferred},
		{"instancetype.inferFromVolumeFailurePolicy", Supported, allVMMs, ""},
		{"preference.name", Supported, allVMMs, ""},
		{"preference.kind", Supported, allVMMs, kind},
		{"preference.revisionName", Supported, allVMMs, "a ControllerRevision of the VM's namespace"},
		{"preference.inferFromVolume", Supported, allVMMs, inferred},
		{"preference.inferFromVolumeFailurePolicy", Supported, allVMMs, ""},
		{"template.metadata", Supported, allVMMs, "labels and annotations reach the instance and its pod"},
		{"dataVolumeTemplates[].apiVersion", Supported, allVMMs, "has no effect, as with KubeVirt"},
		{"dataVolumeTemplates[].kind", Supported, allVMMs, "has no effect, as with KubeVirt"},
		{"dataVolumeTemplates[].metadata", Supported, allVMMs, ""},
		{"dataVolumeTemplates[].spec.*", Supported, allVMMs, "CDI carries it out where it is installed; else vmlet does: see imports.md for what it imports"},
		{"dataVolumeTemplates[].status", Supported, allVMMs, "has no effect, as with KubeVirt"},
		{"updateVolumesStrategy", Supported, allVMMs, "Replacement: an exchanged volume counts from the next start on"},
		{"updateVolumesStrategy=Migration", Refused, "", "volumes of a running VM are not migrated: use Replacement, and restart the VM"},
	}
}

// InstanceFields are the fields of a VirtualMachineInstance's spec, which are those of a
// VirtualMachine's template.spec as well, in the order of the documentation.
func InstanceFields() []Field {
	return slices.Concat(processorFields(), machineTypeFields(), featureFields(), deviceFields(), volumeFields(), networkFields(), podFields())
}

func processorFields() []Field {
	return []Field{
		{"domain.cpu.sockets", Supported, allVMMs, ""},
		{"domain.cpu.cores", Supported, allVMMs, ""},
		{"domain.cpu.threads", Supported, allVMMs, "cloud-hypervisor: at most 2"},
		{"domain.cpu.maxSockets", Supported, allVMMs, "sockets can be added while the VM runs, up to these"},
		{"domain.cpu.model", Supported, allVMMs, "named models: QEMU; host-model and host-passthrough both give the guest the node's processor"},
		{"domain.cpu.features[].name", Supported, onlyQEMU, ""},
		{"domain.cpu.features[].policy", Supported, onlyQEMU, ""},
		{"domain.cpu.dedicatedCpuPlacement", Supported, allVMMs, "each vCPU has one of the node's CPUs to itself, where the kubelet's CPU manager is static; not with sockets that are added while the VM runs"},
		{"domain.cpu.isolateEmulatorThread", Supported, allVMMs, "the VMM's other threads have a CPU of their own"},
		{"domain.cpu.numa.guestMappingPassthrough", Supported, onlyQEMU, "the guest has the NUMA nodes that its CPUs and memory are on; with dedicatedCpuPlacement and memory.hugepages; on more than one node QEMU 8.1 or later"},
		{"domain.cpu.realtime", Refused, "", "nothing in a pod may raise a thread's priority: leave it out; dedicatedCpuPlacement with isolateEmulatorThread keeps others off the guest's CPUs"},
		{"domain.memory.guest", Supported, allVMMs, ""},
		{"domain.memory.maxGuest", Refused, "", "a running VM gets no more memory than it was started with: leave it out, and restart the VM to give it more"},
		{"domain.memory.hugepages.pageSize", Supported, allVMMs, "2Mi or 1Gi; the guest's memory must be a multiple of it, and its pod requests hugepages-2Mi or hugepages-1Gi"},
		{"domain.memory.reservedOverhead", Refused, "", "the pod has what the VMM was measured to need: leave it out, or raise additionalGuestMemoryOverheadRatio in the KubeVirt object"},
		{"domain.resources.requests", Supported, allVMMs, "but hugepages-*"},
		{"domain.resources.limits", Supported, allVMMs, "but hugepages-*"},
		{"domain.resources.overcommitGuestOverhead", Refused, "", "the VMM's own memory is always requested: leave it out, or set resources.requests.memory below memory.guest"},
	}
}

func machineTypeFields() []Field {
	const chassis = "the guest sees the chassis of the VMM: leave it out"
	const hpet = "late ticks of the HPET are delayed: use delay"
	return []Field{
		{"domain.machine.type", Supported, onlyQEMU, "one of emulatedMachines in the KubeVirt object; those of Red Hat's QEMU (pc-q35-rhel9.4.0) are q35"},
		{"domain.firmware.uuid", Supported, allVMMs, "made with the VirtualMachine if unset"},
		{"domain.firmware.serial", Supported, allVMMs, "made with the VirtualMachine if unset"},
		{"domain.firmware.bootloader.bios.useSerial", Ignored, "", "the BIOS writes to the screen alone; what the guest writes to its serial console is shown"},
		{"domain.firmware.bootloader.efi.secureBoot", Supported, allVMMs, "false; on amd64 it has to be set, as KubeVirt's default is true"},
		{"domain.firmware.bootloader.efi.secureBoot=true", Refused, "", "Secure Boot is not supported yet: set it to false"},
		{"domain.firmware.bootloader.efi.persistent", Refused, "", "UEFI variables are not kept over restarts yet: leave it out"},
		{"domain.firmware.kernelBoot.kernelArgs", Supported, allVMMs, ""},
		{"domain.firmware.kernelBoot.container.image", Supported, allVMMs, ""},
		{"domain.firmware.kernelBoot.container.imagePullSecret", Supported, allVMMs, ""},
		{"domain.firmware.kernelBoot.container.imagePullPolicy", Supported, allVMMs, ""},
		{"domain.firmware.kernelBoot.container.kernelPath", Supported, allVMMs, ""},
		{"domain.firmware.kernelBoot.container.initrdPath", Supported, allVMMs, "without kernelPath the guest boots from its disks"},
		{"domain.firmware.acpi", Refused, "", "ACPI tables of volumes are not supported: leave it out"},
		{"domain.chassis.manufacturer", Refused, "", chassis},
		{"domain.chassis.version", Refused, "", chassis},
		{"domain.chassis.serial", Refused, "", chassis},
		{"domain.chassis.asset", Supported, onlyQEMU, ""},
		{"domain.chassis.sku", Refused, "", chassis},
		{"domain.clock.utc.offsetSeconds", Supported, onlyQEMU, ""},
		{"domain.clock.timezone", Supported, onlyQEMU, ""},
		{"domain.clock.timer.hpet.present", Supported, allVMMs, "true: QEMU"},
		{"domain.clock.timer.hpet.tickPolicy", Supported, onlyQEMU, "delay"},
		{"domain.clock.timer.hpet.tickPolicy=catchup", Refused, "", hpet},
		{"domain.clock.timer.hpet.tickPolicy=merge", Refused, "", hpet},
		{"domain.clock.timer.hpet.tickPolicy=discard", Refused, "", hpet},
		{"domain.clock.timer.kvm.present", Supported, allVMMs, "false: QEMU"},
		{"domain.clock.timer.pit.present", Supported, allVMMs, "true: QEMU"},
		{"domain.clock.timer.pit.tickPolicy", Supported, onlyQEMU, ""},
		{"domain.clock.timer.rtc.present", Supported, allVMMs, ""},
		{"domain.clock.timer.rtc.present=false", Refused, "", "a machine can't be without its clock: leave it out"},
		{"domain.clock.timer.rtc.tickPolicy", Supported, onlyQEMU, ""},
		{"domain.clock.timer.rtc.track", Supported, allVMMs, "guest: QEMU"},
		{"domain.clock.timer.hyperv.present", Supported, allVMMs, "true: QEMU"},
		{"domain.launchSecurity", Refused, "", "confidential VMs are not supported: leave it out"},
		{"domain.rebootPolicy", Supported, allVMMs, "Terminate: QEMU"},
	}
}

func featureFields() []Field {
	fields := []Field{
		{"domain.features.acpi.enabled", Supported, allVMMs, "false: QEMU, and not with UEFI"},
		{"domain.features.apic.enabled", Supported, allVMMs, "true"},
		{"domain.features.apic.enabled=false", Refused, "", "machines can't be without it, as their devices interrupt by it: leave it out"},
		{"domain.features.apic.endOfInterrupt", Ignored, "", "the VMM signals ends of interrupts as the processor can"},
		{"domain.features.smm.enabled", Supported, allVMMs, "true: QEMU on amd64"},
		{"domain.features.kvm.hidden", Supported, allVMMs, "true: QEMU"},
		{"domain.features.pvspinlock.enabled", Supported, onlyQEMU, ""},
		{"domain.features.hypervPassthrough.enabled", Supported, onlyQEMU, ""},
	}
	for _, name := range []string{
		"relaxed.enabled", "vapic.enabled", "spinlocks.enabled", "spinlocks.spinlocks", "vpindex.enabled", "runtime.enabled",
		"synic.enabled", "synictimer.enabled", "synictimer.direct.enabled", "reset.enabled", "vendorid.enabled", "vendorid.vendorid",
		"frequencies.enabled", "reenlightenment.enabled", "tlbflush.enabled", "tlbflush.direct.enabled", "tlbflush.extended.enabled",
		"ipi.enabled", "evmcs.enabled",
	} {
		fields = append(fields, Field{"domain.features.hyperv." + name, Supported, onlyQEMU, ""})
	}
	return fields
}

func podFields() []Field {
	fields := []Field{
		{"startStrategy", Supported, allVMMs, ""},
		{"startStrategy=Restore", Refused, "", "the controller alone writes it: set startStrategy of the VirtualMachine"},
		{"restoreFrom", Refused, "", "the controller alone writes it: leave it out"},
		{"stopStrategy", Refused, "", "the controller alone writes it: set runStrategy: Hibernate in the VirtualMachine"},
		{"evictionStrategy", Supported, allVMMs, "Hibernate saves the guest and has it go on elsewhere, of a VirtualMachine; no VM is live-migrated: with LiveMigrate its eviction is denied, LiveMigrateIfPossible acts as None"},
		{"terminationGracePeriodSeconds", Supported, allVMMs, ""},
	}
	for _, probe := range []string{"livenessProbe", "readinessProbe"} {
		fields = append(fields,
			Field{probe + ".exec", Supported, onlyQEMU, "the guest agent runs it; it prints 40 KiB at most. Succeeds while the guest's file systems are frozen"},
			Field{probe + ".guestAgentPing", Supported, onlyQEMU, "succeeds while the guest is paused"})
		for _, name := range []string{"httpGet", "tcpSocket", "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"} {
			fields = append(fields, Field{probe + "." + name, Supported, allVMMs, ""})
		}
	}
	for _, name := range []string{
		"hostname", "subdomain", "dnsPolicy", "dnsConfig", "architecture", "priorityClassName", "nodeSelector", "affinity",
		"schedulerName", "serviceAccountName", "tolerations", "topologySpreadConstraints",
	} {
		fields = append(fields, Field{name, Supported, allVMMs, ""})
	}
	return append(fields,
		Field{"accessCredentials[].sshPublicKey.source.secret.secretName", Supported, allVMMs, ""},
		Field{"accessCredentials[].sshPublicKey.propagationMethod.noCloud", Supported, allVMMs, ""},
		Field{"accessCredentials[].sshPublicKey.propagationMethod.configDrive", Supported, allVMMs, ""},
		Field{"accessCredentials[].sshPublicKey.propagationMethod.qemuGuestAgent.users", Supported, onlyQEMU, "these users log in with the Secret's keys alone; a change of the Secret reaches the guest within a minute or two"},
		Field{"accessCredentials[].userPassword.source.secret.secretName", Supported, onlyQEMU, ""},
		Field{"accessCredentials[].userPassword.propagationMethod.qemuGuestAgent", Supported, onlyQEMU, ""},
		Field{"resourceClaims", Refused, "", "devices of resource claims are not supported: leave it out"},
		Field{"utilityVolumes", Refused, "", "the controller alone writes it: leave it out"},
	)
}
