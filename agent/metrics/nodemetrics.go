package metrics

// nodeMetrics are those of the node and of the agent.
type nodeMetrics struct {
	metricList

	build                              Metric
	hypervisor, vmmState, vmmInfo, vms Metric
	devices, registered                Metric
	registrations, allocations         Metric
	probes, probeDuration, unknown     Metric
	samples, outcomes                  Metric
	saves, saveDuration, savedBytes    Metric
	restores, restoreDuration          Metric
	hugePages, freeHugePages           Metric
	ramSize, ramUsed                   Metric
}

func newNodeMetrics() nodeMetrics {
	var list metricList
	m := nodeMetrics{
		build: list.gauge("vmlet_build_info", "Always 1; its labels name the version that this agent was built from.", "version", "goversion", "architecture"),
		hypervisor: list.gauge("vmlet_hypervisor_state", "1 for the state that a hypervisor is in, 0 for the others. Missing until it was probed.",
			"hypervisor", "state"),
		vmmState: list.gauge("vmlet_vmm_state", "1 for the state that a VMM's program is in, 0 for the other. Missing until it was probed.", "vmm", "state"),
		vmmInfo:  list.gauge("vmlet_vmm_info", "Always 1, for each VMM's program that works.", "vmm", "version"),
		vms:      list.gauge("vmlet_vms", "Number of VMs, by state and VMM; the VMM is none for a VM that never ran.", "state", "vmm"),

		devices: list.gauge("vmlet_device_plugin_devices", "Number of devices offered to the kubelet, by resource and health.", "resource", "health"),
		registered: list.gauge("vmlet_device_plugin_registered",
			"1 if the resource's last registration with the kubelet still holds, 0 if not. A resource without devices is not registered.", "resource"),
		registrations: list.counter("vmlet_device_plugin_registrations_total", "Registrations of a resource with the kubelet.", "resource"),
		allocations:   list.counter("vmlet_device_plugin_allocations_total", "Containers that the kubelet has started with devices of a resource.", "resource"),

		probes: list.counter("vmlet_capability_probes_total",
			"Probes of what the machine can do, by outcome; partial: some facts could not be determined; failed: the probe was aborted.", "outcome"),
		probeDuration: list.summary("vmlet_capability_probe_duration_seconds", "Duration of the probes of what the machine can do, in seconds."),
		unknown:       list.gauge("vmlet_capability_unknown_facts", "Facts about the machine that the last probe could not determine (vmlet probe names them)."),
		samples:       list.counter("vmlet_vmm_samples_total", "Requests to running VMMs for their statistics, by outcome.", "outcome"),
		outcomes:      list.counter("vmlet_kubernetes_outcomes_total", "Writes of the node's labels and renewals of its Lease in Kubernetes, by outcome.", "what", "outcome"),

		saves: list.counter("vmlet_saves_total",
			"Attempts to save a VM to a memory image since the agent started, by outcome; after each outcome but succeeded the guest continues.", "outcome"),
		saveDuration: list.summary("vmlet_save_duration_seconds", "Duration of successful saves to memory images, in seconds, from the request until the VM had ended or continued."),
		savedBytes:   list.counter("vmlet_saved_bytes_total", "Bytes that saves have written to memory images: memory, device state, and disks that were created in pods."),
		restores:     list.counter("vmlet_restores_total", "Attempts to restore a VM from a memory image since the agent started, by outcome.", "outcome"),
		restoreDuration: list.summary("vmlet_restore_duration_seconds",
			"Duration of successful restores from memory images, in seconds, from when the image was known until the guest could run."),

		hugePages:     list.gauge("vmlet_huge_pages", "Huge pages that the machine has, by NUMA node; the node is empty where the machine has none.", "numa_node", "page_size"),
		freeHugePages: list.gauge("vmlet_huge_pages_free", "Huge pages that are free, by NUMA node; the node is empty where the machine has none.", "numa_node", "page_size"),
		ramSize:       list.gauge("vmlet_ram_mount_size_bytes", "The size limit of the agent's mount for guests' memory, in bytes."),
		ramUsed:       list.gauge("vmlet_ram_mount_used_bytes", "How much of the agent's mount for guests' memory is used, in bytes."),
	}
	m.metricList = list
	return m
}
