// Package fields has a row for each field of the API: what vmlet does with it, and which fields of the specification
// come from it. Validation, the document, the way back of faults, and the conversion of what is merely copied all come
// from the row (pure). Start reading at Field, then at Instance.
package fields

import (
	"slices"
	"strings"
)

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

// Field is a row of the table: all that vmlet knows of a field of the API beside what the field means. A row that is
// refused or ignored stands for all that is below it; one that is supported, for itself alone.
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
	// Spec are the fields of the specification that come from it. A fault of theirs, or of what is in
	// them, is this field's (Of).
	Spec []string
	// Copied: its text becomes that of Spec (Copy). Other fields are converted by cluster/convert.
	Copied bool
}

func all(path string, note ...string) Field  { return row(path, Supported, AllVMMs, note) }
func qemu(path string, note ...string) Field { return row(path, Supported, OnlyQEMU, note) }
func refused(path, note string) Field        { return row(path, Refused, "", []string{note}) }
func ignored(path, note string) Field        { return row(path, Ignored, "", []string{note}) }

func row(path string, support Support, vmm string, note []string) Field {
	return Field{Path: path, Support: support, VMM: vmm, Note: strings.Join(note, "")}
}

func (f Field) is(spec ...string) Field {
	f.Spec = spec
	return f
}

func (f Field) copied(spec string) Field {
	f.Copied = true
	return f.is(spec)
}

// Machine are the fields of a VirtualMachine's spec but for those below
// template.spec, in the order of the documentation.
func Machine() []Field {
	const kind = "in any case, singular or plural; the cluster-wide one if unset"
	const inferred = "its name and kind are written in its place when the VM is created"
	return []Field{
		all("running", "deprecated: use runStrategy; true is Always, false is Halted"),
		all("runStrategy"),
		refused("runStrategy=WaitAsReceiver", "migration between clusters is not supported: use Halted until the disks are here, then Always"),
		all("hibernateStrategy.mode", "Save or SuspendToDisk; the cluster's if unset"),
		all("hibernateStrategy.warningTimeoutSeconds", "an event is made then, and the hibernation goes on"),
		all("hibernateStrategy.claimName", "with volumeMode Filesystem, of this VM alone; made if unset"),
		all("hibernateStrategy.storageClassName", "of a claim that is made"),
		refused("hibernateStrategy.timeoutSeconds", "it is written warningTimeoutSeconds"),
		refused("HibernateStrategy", "it is written hibernateStrategy"),
		all("startStrategy", "Restore or Boot, which discards the saved memory; template.spec.startStrategy starts paused"),
		refused("StartStrategy", "it is written startStrategy"),
		all("instancetype.name"),
		all("instancetype.kind", kind),
		all("instancetype.revisionName", "a ControllerRevision of the VM's namespace"),
		all("instancetype.inferFromVolume", inferred),
		all("instancetype.inferFromVolumeFailurePolicy"),
		all("preference.name"),
		all("preference.kind", kind),
		all("preference.revisionName", "a ControllerRevision of the VM's namespace"),
		all("preference.inferFromVolume", inferred),
		all("preference.inferFromVolumeFailurePolicy"),
		all("template.metadata", "labels and annotations reach the instance and its pod"),
		all("dataVolumeTemplates[].apiVersion", "has no effect, as with KubeVirt"),
		all("dataVolumeTemplates[].kind", "has no effect, as with KubeVirt"),
		all("dataVolumeTemplates[].metadata"),
		all("dataVolumeTemplates[].spec.*", "CDI carries it out where it is installed; else vmlet does: see imports.md for what it imports"),
		all("dataVolumeTemplates[].status", "has no effect, as with KubeVirt"),
		all("updateVolumesStrategy", "Replacement: an exchanged volume counts from the next start on"),
		refused("updateVolumesStrategy=Migration", "volumes of a running VM are not migrated: use Replacement, and restart the VM"),
	}
}

// Instance are the fields of a VirtualMachineInstance's spec, which are those of a
// VirtualMachine's template.spec as well, in the order of the documentation.
func Instance() []Field {
	return slices.Concat(processorFields(), machineTypeFields(), featureFields(), deviceFields(), volumeFields(), networkFields(), podFields())
}

func processorFields() []Field {
	return []Field{
		all("domain.cpu.sockets").is("cpu.sockets"),
		all("domain.cpu.cores").is("cpu.cores"),
		all("domain.cpu.threads", "cloud-hypervisor: at most 2").is("cpu.threads"),
		all("domain.cpu.maxSockets", "sockets can be added while the VM runs, up to these").is("cpu.maxVcpus"),
		all("domain.cpu.model", "named models: QEMU; host-model and host-passthrough both give the guest the node's processor").is("cpu.model"),
		qemu("domain.cpu.features[].name").copied("cpu.features[].name"),
		qemu("domain.cpu.features[].policy").copied("cpu.features[].policy"),
		all("domain.cpu.dedicatedCpuPlacement", "each vCPU has one of the node's CPUs to itself, where the kubelet's CPU manager is static; not with sockets that are added while the VM runs").is("cpu.dedicated"),
		all("domain.cpu.isolateEmulatorThread", "the VMM's other threads have a CPU of their own").is("cpu.dedicated.isolateEmulatorThread"),
		qemu("domain.cpu.numa.guestMappingPassthrough", "the guest has the NUMA nodes that its CPUs and memory are on; with dedicatedCpuPlacement and memory.hugepages; on more than one node QEMU 8.1 or later").is("numa"),
		refused("domain.cpu.realtime", "nothing in a pod may raise a thread's priority: leave it out; dedicatedCpuPlacement with isolateEmulatorThread keeps others off the guest's CPUs"),
		all("domain.memory.guest").is("memory"),
		refused("domain.memory.maxGuest", "a running VM gets no more memory than it was started with: leave it out, and restart the VM to give it more"),
		all("domain.memory.hugepages.pageSize", "2Mi or 1Gi; the guest's memory must be a multiple of it, and its pod requests hugepages-2Mi or hugepages-1Gi").is("memory.hugePages"),
		refused("domain.memory.reservedOverhead", "the pod has what the VMM was measured to need: leave it out, or raise additionalGuestMemoryOverheadRatio in the KubeVirt object"),
		all("domain.resources.requests", "but hugepages-*"),
		all("domain.resources.limits", "but hugepages-*"),
		refused("domain.resources.overcommitGuestOverhead", "the VMM's own memory is always requested: leave it out, or set resources.requests.memory below memory.guest"),
	}
}

func machineTypeFields() []Field {
	const chassis = "the guest sees the chassis of the VMM: leave it out"
	const hpet = "late ticks of the HPET are delayed: use delay"
	return []Field{
		qemu("domain.machine.type", "one of emulatedMachines in the KubeVirt object; those of Red Hat's QEMU (pc-q35-rhel9.4.0) are q35").is("machineType"),
		all("domain.firmware.uuid", "made with the VirtualMachine if unset").is("system.uuid"),
		all("domain.firmware.serial", "made with the VirtualMachine if unset").is("system.serial"),
		ignored("domain.firmware.bootloader.bios.useSerial", "the BIOS writes to the screen alone; what the guest writes to its serial console is shown"),
		all("domain.firmware.bootloader.efi.secureBoot", "false; on amd64 it has to be set, as KubeVirt's default is true"),
		refused("domain.firmware.bootloader.efi.secureBoot=true", "Secure Boot is not supported yet: set it to false"),
		refused("domain.firmware.bootloader.efi.persistent", "UEFI variables are not kept over restarts yet: leave it out"),
		all("domain.firmware.kernelBoot.kernelArgs").is("boot.kernel.cmdline"),
		all("domain.firmware.kernelBoot.container.image"),
		all("domain.firmware.kernelBoot.container.imagePullSecret"),
		all("domain.firmware.kernelBoot.container.imagePullPolicy"),
		all("domain.firmware.kernelBoot.container.kernelPath").is("boot.kernel.path"),
		all("domain.firmware.kernelBoot.container.initrdPath", "without kernelPath the guest boots from its disks").is("boot.kernel.initrd"),
		refused("domain.firmware.acpi", "ACPI tables of volumes are not supported: leave it out"),
		refused("domain.chassis.manufacturer", chassis),
		refused("domain.chassis.version", chassis),
		refused("domain.chassis.serial", chassis),
		qemu("domain.chassis.asset").copied("system.assetTag"),
		refused("domain.chassis.sku", chassis),
		qemu("domain.clock.utc.offsetSeconds").is("clock.offsetSeconds"),
		qemu("domain.clock.timezone").is("clock.timezone"),
		all("domain.clock.timer.hpet.present", "true: QEMU"),
		qemu("domain.clock.timer.hpet.tickPolicy", "delay"),
		refused("domain.clock.timer.hpet.tickPolicy=catchup", hpet),
		refused("domain.clock.timer.hpet.tickPolicy=merge", hpet),
		refused("domain.clock.timer.hpet.tickPolicy=discard", hpet),
		all("domain.clock.timer.kvm.present", "false: QEMU"),
		all("domain.clock.timer.pit.present", "true: QEMU"),
		qemu("domain.clock.timer.pit.tickPolicy"),
		all("domain.clock.timer.rtc.present"),
		refused("domain.clock.timer.rtc.present=false", "a machine can't be without its clock: leave it out"),
		qemu("domain.clock.timer.rtc.tickPolicy"),
		all("domain.clock.timer.rtc.track", "guest: QEMU"),
		all("domain.clock.timer.hyperv.present", "true: QEMU"),
		refused("domain.launchSecurity", "confidential VMs are not supported: leave it out"),
		all("domain.rebootPolicy", "Terminate: QEMU").is("onReboot"),
	}
}

func featureFields() []Field {
	fields := []Field{
		all("domain.features.acpi.enabled", "false: QEMU, and not with UEFI").is("features.acpi"),
		all("domain.features.apic.enabled", "true").is("features.apic"),
		refused("domain.features.apic.enabled=false", "machines can't be without it, as their devices interrupt by it: leave it out"),
		ignored("domain.features.apic.endOfInterrupt", "the VMM signals ends of interrupts as the processor can"),
		all("domain.features.smm.enabled", "true: QEMU on amd64").is("features.smm"),
		all("domain.features.kvm.hidden", "true: QEMU").is("features.kvmHidden"),
		qemu("domain.features.pvspinlock.enabled"),
		qemu("domain.features.hypervPassthrough.enabled"),
	}
	for _, name := range []string{
		"relaxed.enabled", "vapic.enabled", "spinlocks.enabled", "spinlocks.spinlocks", "vpindex.enabled", "runtime.enabled",
		"synic.enabled", "synictimer.enabled", "synictimer.direct.enabled", "reset.enabled", "vendorid.enabled", "vendorid.vendorid",
		"frequencies.enabled", "reenlightenment.enabled", "tlbflush.enabled", "tlbflush.direct.enabled", "tlbflush.extended.enabled",
		"ipi.enabled", "evmcs.enabled",
	} {
		fields = append(fields, qemu("domain.features.hyperv."+name))
	}
	return fields
}

func podFields() []Field {
	fields := []Field{
		all("startStrategy"),
		refused("startStrategy=Restore", "the controller alone writes it: set startStrategy of the VirtualMachine"),
		refused("restoreFrom", "the controller alone writes it: leave it out"),
		refused("stopStrategy", "the controller alone writes it: set runStrategy: Hibernate in the VirtualMachine"),
		all("evictionStrategy", "Hibernate saves the guest and has it go on elsewhere, of a VirtualMachine; no VM is live-migrated: with LiveMigrate its eviction is denied, LiveMigrateIfPossible acts as None"),
		all("terminationGracePeriodSeconds").is("stopGracePeriod"),
	}
	for _, probe := range []string{"livenessProbe", "readinessProbe"} {
		fields = append(fields,
			qemu(probe+".exec", "the guest agent runs it; it prints 40 KiB at most. Succeeds while the guest's file systems are frozen"),
			qemu(probe+".guestAgentPing", "succeeds while the guest is paused"))
		for _, name := range []string{"httpGet", "tcpSocket", "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"} {
			fields = append(fields, all(probe+"."+name))
		}
	}
	for _, name := range []string{
		"hostname", "subdomain", "dnsPolicy", "dnsConfig", "architecture", "priorityClassName", "nodeSelector", "affinity",
		"schedulerName", "serviceAccountName", "tolerations", "topologySpreadConstraints",
	} {
		fields = append(fields, all(name))
	}
	return append(fields,
		all("accessCredentials[].sshPublicKey.source.secret.secretName"),
		all("accessCredentials[].sshPublicKey.propagationMethod.noCloud"),
		all("accessCredentials[].sshPublicKey.propagationMethod.configDrive"),
		qemu("accessCredentials[].sshPublicKey.propagationMethod.qemuGuestAgent.users", "these users log in with the Secret's keys alone; a change of the Secret reaches the guest within a minute or two"),
		qemu("accessCredentials[].userPassword.source.secret.secretName"),
		qemu("accessCredentials[].userPassword.propagationMethod.qemuGuestAgent"),
		refused("resourceClaims", "devices of resource claims are not supported: leave it out"),
		refused("utilityVolumes", "the controller alone writes it: leave it out"),
	)
}
