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
		build: list.gauge("vmlet_build_info", "Always 1; what this agent is built from.", "version", "goversion", "architecture"),
		hypervisor: list.gauge("vmlet_hypervisor_state", "1 for the state that a hypervisor is in, 0 for the others. Not there as long as it was not asked.",
			"hypervisor", "state"),
		vmmState: list.gauge("vmlet_vmm_state", "1 for the state that a VMM's program is in, 0 for the other. Not there as long as it was not asked.", "vmm", "state"),
		vmmInfo:  list.gauge("vmlet_vmm_info", "Always 1, for each VMM's program that works.", "vmm", "version"),
		vms:      list.gauge("vmlet_vms", "How many VMs there are, by their state and VMM; none is one that never ran.", "state", "vmm"),

		devices: list.gauge("vmlet_device_plugin_devices", "Devices that are offered to the kubelet.", "resource", "health"),
		registered: list.gauge("vmlet_device_plugin_registered",
			"1 if the kubelet knows of a resource, as far as the agent can see. 0 is right where there are no devices of it.", "resource"),
		registrations: list.counter("vmlet_device_plugin_registrations_total", "How often a resource was registered with the kubelet.", "resource"),
		allocations:   list.counter("vmlet_device_plugin_allocations_total", "Containers that were given devices of a resource.", "resource"),

		probes: list.counter("vmlet_capability_probes_total",
			"How often the machine was asked what it can do; partial: some of it could not be asked; failed: the asking was broken off.", "outcome"),
		probeDuration: list.summary("vmlet_capability_probe_duration_seconds", "How long that took."),
		unknown:       list.gauge("vmlet_capability_unknown_facts", "Facts about the machine that could not be asked the last time (vmlet probe names them)."),
		samples:       list.counter("vmlet_vmm_samples_total", "How often running VMMs were asked what they have counted.", "outcome"),
		outcomes:      list.counter("vmlet_kubernetes_outcomes_total", "What was done for the Node object, and how it ended.", "what", "outcome"),

		saves: list.counter("vmlet_saves_total",
			"How often a VM was to be saved to a memory image since the agent began, by how that ended; whatever the outcome but succeeded, the guest was to go on.", "outcome"),
		saveDuration: list.summary("vmlet_save_duration_seconds", "How long saves to memory images took that succeeded, in seconds, from the request until the VM had ended or went on."),
		savedBytes:   list.counter("vmlet_saved_bytes_total", "Bytes that saves have written to memory images: memory, device state, and disks that were made in pods."),
		restores:     list.counter("vmlet_restores_total", "How often a VM was to be restored from a memory image since the agent began, by how that ended.", "outcome"),
		restoreDuration: list.summary("vmlet_restore_duration_seconds",
			"How long restores from memory images took that succeeded, in seconds, from when the image was known until the guest could run."),

		hugePages:     list.gauge("vmlet_huge_pages", "Huge pages that the machine has, by NUMA node; where there are no nodes that is empty.", "numa_node", "page_size"),
		freeHugePages: list.gauge("vmlet_huge_pages_free", "Huge pages of those that nobody has.", "numa_node", "page_size"),
		ramSize:       list.gauge("vmlet_ram_mount_size_bytes", "The most that guests' memory may take in the agent's mount for it."),
		ramUsed:       list.gauge("vmlet_ram_mount_used_bytes", "What guests' memory takes there."),
	}
	m.metricList = list
	return m
}
