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
	flow := func(direction, way string) flowMetrics {
		one := func(what, name string) Metric {
			return vmi(list.counter, "network_"+direction+"_"+name+"_total", what+" "+way+" the guest, by network.", "interface")
		}
		return flowMetrics{one("Bytes", "bytes"), one("Packets", "packets"), one("Faulty packets", "errors"), one("Dropped packets", "packets_dropped")}
	}
	m := vmMetrics{
		info: list.gauge("vmlet_vm_info", "Always 1, for each VM of the agent, running or not; its labels describe the VM.",
			of("id", "pod", "hypervisor", "vmm", "vmm_version", "machine_type")...),
		state: list.gauge("vmlet_vm_state", "Always 1, for the state that a VM is in.", of("state")...),
		sampled: list.gauge("vmlet_vm_sampled_timestamp_seconds",
			"When the VM's VMM last returned its statistics, in seconds since 1970.", of()...),
		charged: list.gauge("vmlet_vm_memory_charged_bytes",
			"Memory charged to the VM's cgroup, in bytes: touched memory of the guest, memory of the VMM and the shim, and pages of files that they have read.", of()...),

		vmiInfo: vmi(list.gauge, "info", "Always 1, for each VM that has a VMM or is about to get one; phases are KubeVirt's.", "phase", "vmi_pod"),
		panics:  vmi(list.counter, "guest_os_panic_total", "Panics of the guest's kernel that were reported to this agent."),

		cpu:       vmi(list.counter, "cpu_usage_seconds_total", "CPU time of the VM's cgroup, or of the VMM's process if there is no cgroup, in seconds."),
		cpuUser:   vmi(list.counter, "cpu_user_usage_seconds_total", "CPU time of the VM outside the host's kernel, in seconds."),
		cpuSystem: vmi(list.counter, "cpu_system_usage_seconds_total", "CPU time of the VM inside the host's kernel, in seconds."),
		vcpu:      vmi(list.counter, "vcpu_seconds_total", "CPU time of a virtual CPU's thread, in seconds. The state is always running: every virtual CPU is online.", "id", "state"),
		vcpuWait: vmi(list.counter, "vcpu_wait_seconds_total",
			"How long a virtual CPU waited, in seconds, from the scheduler's statistics (wait_sum). Missing unless kernel.sched_schedstats is 1.", "id"),
		vcpuDelay: vmi(list.counter, "vcpu_delay_seconds_total", "How long a virtual CPU was ready to run and waited for a CPU of the host, in seconds.", "id"),

		resident:    vmi(list.gauge, "memory_resident_bytes", "Resident memory of the VMM's process, in bytes."),
		domain:      vmi(list.gauge, "memory_domain_bytes", "Memory that the VM was created with, in bytes."),
		balloon:     vmi(list.gauge, "memory_actual_balloon_bytes", "Memory that the balloon leaves the guest, in bytes."),
		available:   vmi(list.gauge, "memory_available_bytes", "All memory of the guest's kernel, in bytes, as reported by the guest."),
		unused:      vmi(list.gauge, "memory_unused_bytes", "Memory that the guest does not use, in bytes, as reported by the guest."),
		cached:      vmi(list.gauge, "memory_cached_bytes", "Memory that the guest uses as page cache, in bytes, as reported by the guest."),
		usable:      vmi(list.gauge, "memory_usable_bytes", "Memory that the guest could give to new programs without swapping, in bytes, as reported by the guest."),
		swapIn:      vmi(list.gauge, "memory_swap_in_traffic_bytes", "Bytes that the guest has read from its swap since it was booted, as reported by the guest."),
		swapOut:     vmi(list.gauge, "memory_swap_out_traffic_bytes", "Bytes that the guest has written to its swap since it was booted, as reported by the guest."),
		majorFaults: vmi(list.counter, "memory_pgmajfault_total", "Page faults in the guest that read from a disk, as reported by the guest."),
		minorFaults: vmi(list.counter, "memory_pgminfault_total", "Page faults in the guest that did not read from a disk, as reported by the guest."),

		reads:        vmi(list.counter, "storage_iops_read_total", "Reads that the guest has made, by disk.", "drive"),
		writes:       vmi(list.counter, "storage_iops_write_total", "Writes that the guest has made, by disk.", "drive"),
		flushes:      vmi(list.counter, "storage_flush_requests_total", "Flushes that the guest has requested, by disk.", "drive"),
		readBytes:    vmi(list.counter, "storage_read_traffic_bytes_total", "Bytes that the guest has read, by disk.", "drive"),
		writtenBytes: vmi(list.counter, "storage_write_traffic_bytes_total", "Bytes that the guest has written, by disk.", "drive"),
		readTime:     vmi(list.counter, "storage_read_times_seconds_total", "Total duration of the guest's reads, by disk, in seconds.", "drive"),
		writeTime:    vmi(list.counter, "storage_write_times_seconds_total", "Total duration of the guest's writes, by disk, in seconds.", "drive"),
		flushTime:    vmi(list.counter, "storage_flush_times_seconds_total", "Total duration of the guest's flushes, by disk, in seconds.", "drive"),

		received:    flow("receive", "to"),
		transmitted: flow("transmit", "from"),
	}
	m.metricList = list
	return m
}
