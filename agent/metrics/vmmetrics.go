package metrics

// vmMetrics are those of one VM each. Names beginning with kubevirt_vmi_ are
// KubeVirt's, and mean what they mean there; the words are ours.
type vmMetrics struct {
	metricList

	info, state, sampled, charged Metric

	vmiInfo, panics                   Metric
	cpu, cpuUser, cpuSystem           Metric
	vcpu, vcpuWait, vcpuDelay         Metric
	resident, domain, balloon         Metric
	available, unused, cached, usable Metric
	swapIn, swapOut                   Metric
	majorFaults, minorFaults          Metric
	reads, writes, flushes            Metric
	readBytes, writtenBytes           Metric
	readTime, writeTime, flushTime    Metric
	received, transmitted             flowMetrics
}

// flowMetrics are those of one direction of a network interface.
type flowMetrics struct{ bytes, packets, errors, dropped Metric }

func newVMMetrics() vmMetrics {
	var list metricList
	of := func(more ...string) []string { return append([]string{"node", "namespace", "name"}, more...) }
	vmi := func(make func(name, help string, labels ...string) Metric, name, help string, more ...string) Metric {
		return make("kubevirt_vmi_"+name, help, of(more...)...)
	}
	flow := func(direction, verb string) flowMetrics {
		one := func(what, name string) Metric {
			return vmi(list.counter, "network_"+direction+"_"+name+"_total", what+" that the guest has "+verb+", by network.", "interface")
		}
		return flowMetrics{one("Bytes", "bytes"), one("Packets", "packets"), one("Faulty packets", "errors"), one("Packets dropped of those", "packets_dropped")}
	}
	m := vmMetrics{
		info: list.gauge("vmlet_vm_info", "Always 1; what a VM is and runs on. All VMs of the agent, also those that don't run.",
			of("id", "pod", "hypervisor", "vmm", "vmm_version", "machine_type")...),
		state: list.gauge("vmlet_vm_state", "Always 1, for the state that a VM is in.", of("state")...),
		sampled: list.gauge("vmlet_vm_sampled_timestamp_seconds",
			"When the VM's VMM last said what it has counted, in seconds since 1970.", of()...),
		charged: list.gauge("vmlet_vm_memory_charged_bytes",
			"Memory that the VM's cgroup is charged with: the guest's as far as it was touched, the VMM's, its shim's, and pages of files that they have read.", of()...),

		vmiInfo: vmi(list.gauge, "info", "Always 1, for each VM that has a VMM or is about to; phases are KubeVirt's.", "phase", "vmi_pod"),
		panics:  vmi(list.counter, "guest_os_panic_total", "Panics of the guest's kernel that were reported to this agent."),

		cpu:       vmi(list.counter, "cpu_usage_seconds_total", "CPU time of all that belongs to the VM: of its cgroup, or of the VMM's process if it has none."),
		cpuUser:   vmi(list.counter, "cpu_user_usage_seconds_total", "CPU time of it outside the kernel."),
		cpuSystem: vmi(list.counter, "cpu_system_usage_seconds_total", "CPU time of it inside the kernel."),
		vcpu:      vmi(list.counter, "vcpu_seconds_total", "CPU time of a virtual CPU's thread. The state is always running: every virtual CPU is online.", "id", "state"),
		vcpuWait: vmi(list.counter, "vcpu_wait_seconds_total",
			"How long a virtual CPU waited, as the scheduler's statistics have it (wait_sum). Only there with kernel.sched_schedstats=1.", "id"),
		vcpuDelay: vmi(list.counter, "vcpu_delay_seconds_total", "How long a virtual CPU could have run and something else did.", "id"),

		resident:    vmi(list.gauge, "memory_resident_bytes", "Memory that is mapped by the VMM's process, and there."),
		domain:      vmi(list.gauge, "memory_domain_bytes", "Memory that the VM was made with."),
		balloon:     vmi(list.gauge, "memory_actual_balloon_bytes", "Memory that the balloon leaves the guest."),
		available:   vmi(list.gauge, "memory_available_bytes", "All memory that the guest's kernel has, as the guest says."),
		unused:      vmi(list.gauge, "memory_unused_bytes", "Memory that the guest uses for nothing, as the guest says."),
		cached:      vmi(list.gauge, "memory_cached_bytes", "Memory that the guest uses for copies of what is on its disks, as the guest says."),
		usable:      vmi(list.gauge, "memory_usable_bytes", "Memory that the guest could give to new programs without swapping, as the guest says."),
		swapIn:      vmi(list.gauge, "memory_swap_in_traffic_bytes", "What the guest has read from its swap since it was booted, as the guest says."),
		swapOut:     vmi(list.gauge, "memory_swap_out_traffic_bytes", "What the guest has written to its swap since it was booted, as the guest says."),
		majorFaults: vmi(list.counter, "memory_pgmajfault_total", "Page faults in the guest that needed a disk, as the guest says."),
		minorFaults: vmi(list.counter, "memory_pgminfault_total", "Page faults in the guest that needed none, as the guest says."),

		reads:        vmi(list.counter, "storage_iops_read_total", "Reads that the guest has made, by disk.", "drive"),
		writes:       vmi(list.counter, "storage_iops_write_total", "Writes that the guest has made, by disk.", "drive"),
		flushes:      vmi(list.counter, "storage_flush_requests_total", "Flushes that the guest has asked for, by disk.", "drive"),
		readBytes:    vmi(list.counter, "storage_read_traffic_bytes_total", "Bytes that the guest has read, by disk.", "drive"),
		writtenBytes: vmi(list.counter, "storage_write_traffic_bytes_total", "Bytes that the guest has written, by disk.", "drive"),
		readTime:     vmi(list.counter, "storage_read_times_seconds_total", "How long reads took, all together, by disk.", "drive"),
		writeTime:    vmi(list.counter, "storage_write_times_seconds_total", "How long writes took, all together, by disk.", "drive"),
		flushTime:    vmi(list.counter, "storage_flush_times_seconds_total", "How long flushes took, all together, by disk.", "drive"),

		received:    flow("receive", "received"),
		transmitted: flow("transmit", "sent"),
	}
	m.metricList = list
	return m
}
