package metrics

// nodeMetrics are those of the node and of the agent.
type nodeMetrics struct {
	build                              Metric
	hypervisor, vmmState, vmmInfo, vms Metric
	devices, registered                Metric
	registrations, allocations         Metric
	probes, probeDuration, unknown     Metric
	samples, outcomes                  Metric
	hugePages, freeHugePages           Metric
	ramSize, ramUsed                   Metric
}

func newNodeMetrics() nodeMetrics {
	return nodeMetrics{
		build: gauge("vmlet_build_info", "Always 1; what this agent is built from.", "version", "goversion", "architecture"),
		hypervisor: gauge("vmlet_hypervisor_state", "1 for the state that a hypervisor is in, 0 for the others. Not there as long as it was not asked.",
			"hypervisor", "state"),
		vmmState: gauge("vmlet_vmm_state", "1 for the state that a VMM's program is in, 0 for the other. Not there as long as it was not asked.", "vmm", "state"),
		vmmInfo:  gauge("vmlet_vmm_info", "Always 1, for each VMM's program that works.", "vmm", "version"),
		vms:      gauge("vmlet_vms", "How many VMs there are, by their state and VMM; none is one that never ran.", "state", "vmm"),

		devices: gauge("vmlet_device_plugin_devices", "Devices that are offered to the kubelet.", "resource", "health"),
		registered: gauge("vmlet_device_plugin_registered",
			"1 if the kubelet knows of a resource, as far as can be told. 0 is right where there are no devices of it.", "resource"),
		registrations: counter("vmlet_device_plugin_registrations_total", "How often a resource was registered with the kubelet.", "resource"),
		allocations:   counter("vmlet_device_plugin_allocations_total", "Containers that were given devices of a resource.", "resource"),

		probes: counter("vmlet_capability_probes_total",
			"How often the machine was asked what it can do; partial: some of it could not be asked; failed: the asking was broken off.", "outcome"),
		probeDuration: newMetric("summary", "vmlet_capability_probe_duration_seconds", "How long that took.", nil),
		unknown:       gauge("vmlet_capability_unknown_facts", "Facts about the machine that could not be asked the last time (vmlet probe names them)."),
		samples:       counter("vmlet_vmm_samples_total", "How often running VMMs were asked what they have counted.", "outcome"),
		outcomes:      counter("vmlet_kubernetes_outcomes_total", "What was done for the Node object, and how it ended.", "what", "outcome"),

		hugePages:     gauge("vmlet_huge_pages", "Huge pages that the machine has, by NUMA node; where there are no nodes that is empty.", "numa_node", "page_size"),
		freeHugePages: gauge("vmlet_huge_pages_free", "Huge pages of those that nobody has.", "numa_node", "page_size"),
		ramSize:       gauge("vmlet_ram_mount_size_bytes", "The most that guests' memory may take in the agent's mount for it."),
		ramUsed:       gauge("vmlet_ram_mount_used_bytes", "What guests' memory takes there."),
	}
}

// all are the metrics, for whoever lists them.
func (m nodeMetrics) all() []Metric {
	return []Metric{
		m.build, m.hypervisor, m.vmmState, m.vmmInfo, m.vms,
		m.devices, m.registered, m.registrations, m.allocations,
		m.probes, m.probeDuration, m.unknown, m.samples, m.outcomes,
		m.hugePages, m.freeHugePages, m.ramSize, m.ramUsed,
	}
}
