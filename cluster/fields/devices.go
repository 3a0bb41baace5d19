package fields

func deviceFields() []Field {
	const hostDevice = "devices of nodes can't be given to VMs yet: leave it out"
	const queues = "virtio devices have one queue: leave it out"
	const otherBinding = "use masquerade on the pod network; on a network of Multus bridge, and a NetworkAttachmentDefinition whose plug-in makes an ordinary interface, such as bridge"
	const threads = "disks have no threads of their own yet: leave it out"
	const pciAddress = "PCI addresses are given by vmlet, and stay: leave it out"
	const tag = "devices are not tagged in the guest's metadata yet: leave it out"
	return []Field{
		{"domain.devices.disks[].name", Supported, AllVMMs, ""},
		{"domain.devices.disks[].disk.bus", Supported, AllVMMs, "sata (the default on amd64; 48 at most), scsi and usb: QEMU"},
		{"domain.devices.disks[].disk.readonly", Supported, AllVMMs, "but on the bus sata"},
		{"domain.devices.disks[].disk.pciAddress", Refused, "", pciAddress},
		{"domain.devices.disks[].lun", Refused, "", "SCSI pass-through is not supported yet: use disk with bus scsi"},
		{"domain.devices.disks[].cdrom.bus", Supported, OnlyQEMU, ""},
		{"domain.devices.disks[].cdrom.readonly", Supported, OnlyQEMU, ""},
		{"domain.devices.disks[].cdrom.readonly=false", Ignored, "", "guests can't write to a CD-ROM: use disk for what the guest writes to"},
		{"domain.devices.disks[].cdrom.tray", Supported, OnlyQEMU, ""},
		{"domain.devices.disks[].cdrom.tray=open", Ignored, "", "the tray is closed when the guest starts"},
		{"domain.devices.disks[].bootOrder", Supported, AllVMMs, "cloud-hypervisor: in the order of the list"},
		{"domain.devices.disks[].serial", Supported, AllVMMs, "the guest sees its first 20 characters, on the bus scsi 36"},
		{"domain.devices.disks[].dedicatedIOThread", Refused, "", threads},
		{"domain.devices.disks[].cache", Supported, AllVMMs, "writethrough: QEMU"},
		{"domain.devices.disks[].io", Supported, OnlyQEMU, ""},
		{"domain.devices.disks[].tag", Refused, "", tag},
		{"domain.devices.disks[].blockSize", Refused, "", "sizes of blocks can't be set yet: leave it out"},
		{"domain.devices.disks[].shareable", Supported, OnlyQEMU, "on claims, with cache none, in every VM with the claim; such a guest can't be saved"},
		{"domain.devices.disks[].errorPolicy", Supported, AllVMMs, "all but report: QEMU"},
		{"domain.devices.disks[].changedBlockTracking", Refused, "", "incremental backups are not supported: leave it out"},

		{"domain.devices.interfaces[].name", Supported, AllVMMs, ""},
		{"domain.devices.interfaces[].model", Supported, OnlyQEMU, ""},
		{"domain.devices.interfaces[].masquerade", Supported, AllVMMs, ""},
		{"domain.devices.interfaces[].bridge", Supported, AllVMMs, "the guest can't be saved; its ports are not limited"},
		{"domain.devices.interfaces[].sriov", Refused, "", "SR-IOV is not supported yet: " + otherBinding},
		{"domain.devices.interfaces[].passtBinding", Refused, "", "passt is not supported yet: " + otherBinding},
		{"domain.devices.interfaces[].binding", Refused, "", "network binding plug-ins are not supported: " + otherBinding},
		{"domain.devices.interfaces[].slirp", Refused, "", "slirp is not supported, as in KubeVirt since 1.3: " + otherBinding},
		{"domain.devices.interfaces[].macvtap", Refused, "", "macvtap is not supported, as in KubeVirt since 1.3: " + otherBinding},
		{"domain.devices.interfaces[].passt", Refused, "", "passt is not supported, as in KubeVirt since 1.3: " + otherBinding},
		{"domain.devices.interfaces[].ports[].name", Supported, AllVMMs, ""},
		{"domain.devices.interfaces[].ports[].protocol", Supported, AllVMMs, ""},
		{"domain.devices.interfaces[].ports[].port", Supported, AllVMMs, ""},
		{"domain.devices.interfaces[].portRanges[].protocol", Supported, AllVMMs, ""},
		{"domain.devices.interfaces[].portRanges[].start", Supported, AllVMMs, "256 ports and ranges in all at most"},
		{"domain.devices.interfaces[].portRanges[].end", Supported, AllVMMs, ""},
		{"domain.devices.interfaces[].macAddress", Supported, AllVMMs, "made from the VM's UUID and the interface's name if unset; with bridge the pod's"},
		{"domain.devices.interfaces[].bootOrder", Supported, OnlyQEMU, ""},
		{"domain.devices.interfaces[].pciAddress", Refused, "", pciAddress},
		{"domain.devices.interfaces[].dhcpOptions.bootFileName", Supported, AllVMMs, "at most 127 bytes"},
		{"domain.devices.interfaces[].dhcpOptions.tftpServerName", Supported, AllVMMs, ""},
		{"domain.devices.interfaces[].dhcpOptions.ntpServers", Supported, AllVMMs, "IPv4 addresses, 16 at most"},
		{"domain.devices.interfaces[].dhcpOptions.privateOptions[].option", Supported, AllVMMs, "224 to 254, 16 at most"},
		{"domain.devices.interfaces[].dhcpOptions.privateOptions[].value", Supported, AllVMMs, ""},
		{"domain.devices.interfaces[].tag", Refused, "", tag},
		{"domain.devices.interfaces[].acpiIndex", Refused, "", "ACPI indexes of interfaces are not supported: leave it out and match the interface by macAddress in the guest"},
		{"domain.devices.interfaces[].state", Supported, AllVMMs, "down: QEMU; a change counts from the next start on"},
		{"domain.devices.interfaces[].state=absent", Refused, "", "interfaces of a running VM can't be removed yet: remove the interface and restart the VM"},

		{"domain.devices.filesystems", Refused, "", "shared file systems are not supported yet: use a disk of the volume"},
		{"domain.devices.gpus", Refused, "", hostDevice},
		{"domain.devices.hostDevices", Refused, "", hostDevice},
		{"domain.devices.inputs[].name", Supported, OnlyQEMU, ""},
		{"domain.devices.inputs[].type", Supported, OnlyQEMU, ""},
		{"domain.devices.inputs[].bus", Supported, OnlyQEMU, ""},
		{"domain.devices.watchdog.name", Supported, OnlyQEMU, ""},
		{"domain.devices.watchdog.i6300esb.action", Supported, OnlyQEMU, ""},
		{"domain.devices.watchdog.diag288", Refused, "", "s390x is not supported: use i6300esb"},
		{"domain.devices.rng", Supported, AllVMMs, "cloud-hypervisor: always there"},
		{"domain.devices.tpm", Refused, "", "VMs have no TPM yet: leave it out"},
		{"domain.devices.video.type", Supported, OnlyQEMU, "virtio, vga, bochs, cirrus or ramfb"},
		{"domain.devices.sound", Refused, "", "sound is not supported yet: leave it out"},
		{"domain.devices.panicDevices", Refused, "", "panic devices are not supported yet: leave it out"},
		{"domain.devices.clientPassthrough", Refused, "", "USB redirection is not supported yet: leave it out"},
		{"domain.devices.downwardMetrics", Refused, "", "metrics of the node are not shown to guests: leave it out"},
		{"domain.devices.autoattachPodInterface", Supported, AllVMMs, ""},
		{"domain.devices.autoattachGraphicsDevice", Supported, AllVMMs, "a graphics device: QEMU"},
		{"domain.devices.autoattachSerialConsole", Supported, AllVMMs, ""},
		{"domain.devices.logSerialConsole", Supported, AllVMMs, "the log is that of the container compute"},
		{"domain.devices.autoattachMemBalloon", Supported, AllVMMs, ""},
		{"domain.devices.autoattachInputDevice", Supported, OnlyQEMU, ""},
		{"domain.devices.autoattachVSOCK", Refused, "", "vsock is not supported yet: leave it out"},
		{"domain.devices.blockMultiQueue", Refused, "", queues},
		{"domain.devices.networkInterfaceMultiqueue", Supported, AllVMMs, "a queue for each vCPU, at most 16, of the model virtio"},
		{"domain.devices.useVirtioTransitional", Refused, "", "virtio devices are modern ones: leave it out, and use the bus sata and the model e1000e for guests that don't know them"},
		{"domain.devices.disableHotplug", Supported, AllVMMs, "always so: nothing can be attached to a running VM yet"},
		{"domain.ioThreadsPolicy", Refused, "", threads},
		{"domain.ioThreads", Refused, "", threads},
	}
}

func volumeFields() []Field {
	const hotplug = "volumes of a running VM can't be attached or detached yet: leave it out"
	fields := []Field{
		{"volumes[].name", Supported, AllVMMs, ""},
		{"volumes[].containerDisk.image", Supported, OnlyQEMU, ""},
		{"volumes[].containerDisk.imagePullSecret", Supported, OnlyQEMU, ""},
		{"volumes[].containerDisk.path", Supported, OnlyQEMU, ""},
		{"volumes[].containerDisk.imagePullPolicy", Supported, OnlyQEMU, ""},
		{"volumes[].persistentVolumeClaim.claimName", Supported, AllVMMs, ""},
		{"volumes[].persistentVolumeClaim.readOnly", Supported, AllVMMs, ""},
		{"volumes[].persistentVolumeClaim.hotpluggable", Refused, "", hotplug},
		{"volumes[].dataVolume.name", Supported, AllVMMs, "a claim of this name that no DataVolume made is taken as it is"},
		{"volumes[].dataVolume.hotpluggable", Refused, "", hotplug},
		{"volumes[].ephemeral.persistentVolumeClaim", Supported, AllVMMs, ""},
		{"volumes[].emptyDisk.capacity", Supported, AllVMMs, ""},
		{"volumes[].hostDisk", Refused, "", "files of the node are not supported: use a local persistentVolumeClaim"},
	}
	for _, kind := range []string{"cloudInitNoCloud", "cloudInitConfigDrive"} {
		for _, name := range []string{"secretRef", "userDataBase64", "userData", "networkDataSecretRef", "networkDataBase64", "networkData"} {
			fields = append(fields, Field{"volumes[]." + kind + "." + name, Supported, AllVMMs, ""})
		}
	}
	return append(fields,
		Field{"volumes[].sysprep", Refused, "", "sysprep is not supported yet: use a configMap or secret volume with the volumeLabel unattendCD"},
		Field{"volumes[].configMap.name", Supported, AllVMMs, ""},
		Field{"volumes[].configMap.optional", Supported, AllVMMs, ""},
		Field{"volumes[].configMap.volumeLabel", Supported, AllVMMs, ""},
		Field{"volumes[].secret.secretName", Supported, AllVMMs, ""},
		Field{"volumes[].secret.optional", Supported, AllVMMs, ""},
		Field{"volumes[].secret.volumeLabel", Supported, AllVMMs, ""},
		Field{"volumes[].downwardAPI.fields", Supported, AllVMMs, ""},
		Field{"volumes[].downwardAPI.volumeLabel", Supported, AllVMMs, ""},
		Field{"volumes[].serviceAccount.serviceAccountName", Supported, AllVMMs, ""},
		Field{"volumes[].downwardMetrics", Refused, "", "metrics of the node are not shown to guests: leave it out"},
		Field{"volumes[].memoryDump", Refused, "", "memory dumps are not supported: leave it out"},
		Field{"volumes[].containerPath", Refused, "", "directories of the pod are not shared with guests: use a configMap, secret or serviceAccount volume"},
	)
}

func networkFields() []Field {
	return []Field{
		{"networks[].name", Supported, AllVMMs, ""},
		{"networks[].pod.vmNetworkCIDR", Supported, AllVMMs, ""},
		{"networks[].pod.vmIPv6NetworkCIDR", Supported, AllVMMs, ""},
		{"networks[].multus.networkName", Supported, AllVMMs, "with bridge; where Multus is installed"},
		{"networks[].multus.default", Supported, AllVMMs, "with bridge; a name without a namespace is one of Multus' own namespace"},
		{"networks[].resourceClaim", Refused, "", "network devices of resource claims are not supported: use pod"},
	}
}
