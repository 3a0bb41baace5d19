package fields

func deviceFields() []Field {
	const hostDevice = "devices of nodes can't be given to VMs yet: leave it out"
	const queues = "virtio devices have one queue: leave it out"
	const otherBinding = "use masquerade on the pod network; on a network of Multus bridge, and a NetworkAttachmentDefinition whose plug-in makes an ordinary interface, such as bridge"
	const threads = "disks have no threads of their own yet: leave it out"
	const pciAddress = "PCI addresses are given by vmlet, and stay: leave it out"
	const tag = "devices are not tagged in the guest's metadata yet: leave it out"
	return []Field{
		all("domain.devices.disks[].name").is("disks[].name"),
		all("domain.devices.disks[].disk.bus", "sata (the default on amd64; 48 at most), scsi and usb: QEMU").is("disks[].bus"),
		all("domain.devices.disks[].disk.readonly", "but on the bus sata").is("disks[].readOnly"),
		refused("domain.devices.disks[].disk.pciAddress", pciAddress),
		refused("domain.devices.disks[].lun", "SCSI pass-through is not supported yet: use disk with bus scsi"),
		qemu("domain.devices.disks[].cdrom.bus").is("disks[].bus"),
		qemu("domain.devices.disks[].cdrom.readonly").is("disks[].readOnly"),
		ignored("domain.devices.disks[].cdrom.readonly=false", "guests can't write to a CD-ROM: use disk for what the guest writes to"),
		qemu("domain.devices.disks[].cdrom.tray"),
		ignored("domain.devices.disks[].cdrom.tray=open", "the tray is closed when the guest starts"),
		all("domain.devices.disks[].bootOrder", "cloud-hypervisor: in the order of the list").is("disks[].bootOrder"),
		all("domain.devices.disks[].serial", "the guest sees its first 20 characters, on the bus scsi 36").is("disks[].serial"),
		refused("domain.devices.disks[].dedicatedIOThread", threads),
		all("domain.devices.disks[].cache", "writethrough: QEMU").copied("disks[].cache"),
		qemu("domain.devices.disks[].io").copied("disks[].io"),
		refused("domain.devices.disks[].tag", tag),
		refused("domain.devices.disks[].blockSize", "sizes of blocks can't be set yet: leave it out"),
		qemu("domain.devices.disks[].shareable", "on claims, with cache none, in every VM with the claim; such a guest can't be saved").is("disks[].shareable"),
		all("domain.devices.disks[].errorPolicy", "all but report: QEMU").copied("disks[].errorPolicy"),
		refused("domain.devices.disks[].changedBlockTracking", "incremental backups are not supported: leave it out"),

		all("domain.devices.interfaces[].name").is("networks[].name"),
		qemu("domain.devices.interfaces[].model").copied("networks[].model"),
		all("domain.devices.interfaces[].masquerade"),
		all("domain.devices.interfaces[].bridge", "the guest can't be saved; its ports are not limited").is("networks[].pod.binding"),
		refused("domain.devices.interfaces[].sriov", "SR-IOV is not supported yet: "+otherBinding),
		refused("domain.devices.interfaces[].passtBinding", "passt is not supported yet: "+otherBinding),
		refused("domain.devices.interfaces[].binding", "network binding plug-ins are not supported: "+otherBinding),
		refused("domain.devices.interfaces[].slirp", "slirp is not supported, as in KubeVirt since 1.3: "+otherBinding),
		refused("domain.devices.interfaces[].macvtap", "macvtap is not supported, as in KubeVirt since 1.3: "+otherBinding),
		refused("domain.devices.interfaces[].passt", "passt is not supported, as in KubeVirt since 1.3: "+otherBinding),
		all("domain.devices.interfaces[].ports[].name"),
		all("domain.devices.interfaces[].ports[].protocol"),
		all("domain.devices.interfaces[].ports[].port"),
		all("domain.devices.interfaces[].portRanges[].protocol"),
		all("domain.devices.interfaces[].portRanges[].start", "256 ports and ranges in all at most"),
		all("domain.devices.interfaces[].portRanges[].end"),
		all("domain.devices.interfaces[].macAddress", "made from the VM's UUID and the interface's name if unset; with bridge the pod's").is("networks[].mac"),
		qemu("domain.devices.interfaces[].bootOrder").is("networks[].bootOrder"),
		refused("domain.devices.interfaces[].pciAddress", pciAddress),
		all("domain.devices.interfaces[].dhcpOptions.bootFileName", "at most 127 bytes").is("networks[].pod.dhcp.bootFile", "networks[].pod.fallback.bootFile"),
		all("domain.devices.interfaces[].dhcpOptions.tftpServerName").is("networks[].pod.dhcp.tftpServer", "networks[].pod.fallback.tftpServer"),
		all("domain.devices.interfaces[].dhcpOptions.ntpServers", "IPv4 addresses, 16 at most").is("networks[].pod.dhcp.ntpServers"),
		all("domain.devices.interfaces[].dhcpOptions.privateOptions[].option", "224 to 254, 16 at most"),
		all("domain.devices.interfaces[].dhcpOptions.privateOptions[].value"),
		refused("domain.devices.interfaces[].tag", tag),
		refused("domain.devices.interfaces[].acpiIndex", "ACPI indexes of interfaces are not supported: leave it out and match the interface by macAddress in the guest"),
		all("domain.devices.interfaces[].state", "down: QEMU; a change counts from the next start on").is("networks[].pod.linkDown"),
		refused("domain.devices.interfaces[].state=absent", "interfaces of a running VM can't be removed yet: remove the interface and restart the VM"),

		refused("domain.devices.filesystems", "shared file systems are not supported yet: use a disk of the volume"),
		refused("domain.devices.gpus", hostDevice),
		refused("domain.devices.hostDevices", hostDevice),
		qemu("domain.devices.inputs[].name").is("devices.inputs[].name"),
		qemu("domain.devices.inputs[].type").copied("devices.inputs[].type"),
		qemu("domain.devices.inputs[].bus").copied("devices.inputs[].bus"),
		qemu("domain.devices.watchdog.name"),
		qemu("domain.devices.watchdog.i6300esb.action"),
		refused("domain.devices.watchdog.diag288", "s390x is not supported: use i6300esb"),
		all("domain.devices.rng", "cloud-hypervisor: always there").is("devices.entropy"),
		refused("domain.devices.tpm", "VMs have no TPM yet: leave it out"),
		qemu("domain.devices.video.type", "virtio, vga, bochs, cirrus or ramfb"),
		refused("domain.devices.sound", "sound is not supported yet: leave it out"),
		refused("domain.devices.panicDevices", "panic devices are not supported yet: leave it out"),
		refused("domain.devices.clientPassthrough", "USB redirection is not supported yet: leave it out"),
		refused("domain.devices.downwardMetrics", "metrics of the node are not shown to guests: leave it out"),
		all("domain.devices.autoattachPodInterface"),
		all("domain.devices.autoattachGraphicsDevice", "a graphics device: QEMU"),
		all("domain.devices.autoattachSerialConsole").is("devices.console"),
		all("domain.devices.logSerialConsole", "the log is that of the container compute"),
		all("domain.devices.autoattachMemBalloon").is("devices.balloon"),
		qemu("domain.devices.autoattachInputDevice"),
		refused("domain.devices.autoattachVSOCK", "vsock is not supported yet: leave it out"),
		refused("domain.devices.blockMultiQueue", queues),
		all("domain.devices.networkInterfaceMultiqueue", "a queue for each vCPU, at most 16, of the model virtio").is("networks[].pod.queues"),
		refused("domain.devices.useVirtioTransitional", "virtio devices are modern ones: leave it out, and use the bus sata and the model e1000e for guests that don't know them"),
		all("domain.devices.disableHotplug", "always so: nothing can be attached to a running VM yet"),
		refused("domain.ioThreadsPolicy", threads),
		refused("domain.ioThreads", threads),
	}
}

func volumeFields() []Field {
	const hotplug = "volumes of a running VM can't be attached or detached yet: leave it out"
	fields := []Field{
		all("volumes[].name"),
		qemu("volumes[].containerDisk.image"),
		qemu("volumes[].containerDisk.imagePullSecret"),
		qemu("volumes[].containerDisk.path"),
		qemu("volumes[].containerDisk.imagePullPolicy"),
		all("volumes[].persistentVolumeClaim.claimName"),
		all("volumes[].persistentVolumeClaim.readOnly"),
		refused("volumes[].persistentVolumeClaim.hotpluggable", hotplug),
		all("volumes[].dataVolume.name", "a claim of this name that no DataVolume made is taken as it is"),
		refused("volumes[].dataVolume.hotpluggable", hotplug),
		all("volumes[].ephemeral.persistentVolumeClaim"),
		all("volumes[].emptyDisk.capacity"),
		refused("volumes[].hostDisk", "files of the node are not supported: use a local persistentVolumeClaim"),
	}
	for _, kind := range []string{"cloudInitNoCloud", "cloudInitConfigDrive"} {
		for _, name := range []string{"secretRef", "userDataBase64", "userData", "networkDataSecretRef", "networkDataBase64", "networkData"} {
			fields = append(fields, all("volumes[]."+kind+"."+name))
		}
	}
	return append(fields,
		refused("volumes[].sysprep", "sysprep is not supported yet: use a configMap or secret volume with the volumeLabel unattendCD"),
		all("volumes[].configMap.name"),
		all("volumes[].configMap.optional"),
		all("volumes[].configMap.volumeLabel"),
		all("volumes[].secret.secretName"),
		all("volumes[].secret.optional"),
		all("volumes[].secret.volumeLabel"),
		all("volumes[].downwardAPI.fields"),
		all("volumes[].downwardAPI.volumeLabel"),
		all("volumes[].serviceAccount.serviceAccountName"),
		refused("volumes[].downwardMetrics", "metrics of the node are not shown to guests: leave it out"),
		refused("volumes[].memoryDump", "memory dumps are not supported: leave it out"),
		refused("volumes[].containerPath", "directories of the pod are not shared with guests: use a configMap, secret or serviceAccount volume"),
	)
}

func networkFields() []Field {
	return []Field{
		all("networks[].name"),
		all("networks[].pod.vmNetworkCIDR"),
		all("networks[].pod.vmIPv6NetworkCIDR"),
		all("networks[].multus.networkName", "with bridge; where Multus is installed"),
		all("networks[].multus.default", "with bridge; a name without a namespace is one of Multus' own namespace"),
		refused("networks[].resourceClaim", "network devices of resource claims are not supported: use pod"),
	}
}
