package metrics

// vmMetrics are those of one VM each. Names beginning with kubevirt_vmi_ are
// KubeVirt's, and mean what they mean there; the words are ours.
type vmMetrics struct {
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
	of := func(more ...string) []string { return append([]string{"node", "namespace", "name"}, more...) }
	vmi := func(make func(name, help string, labels ...string) Metric, name, help string, more ...string) Metric {
		return make("kubevirt_vmi_"+name, help, of(more...)...)
	}
	flow := func(direction, verb string) flowMetrics {
		one := func(what, name string) Metric {
			return vmi(counter, "network_"+direction+"_"+name+"_total", what+" that the guest has "+verb+", by network.", "interface")
		}
		return flowMetrics{one("Bytes", "bytes"), one("Packets", "packets"), one("Faulty packets", "errors"), one("Packets dropped of those", "packets_dropped")}
	}
	return vmMetrics{
		info: gauge("vmlet_vm_info", "Always 1; what a VM is and runs on. All VMs of the agent, also those that don't run.",
			of("id", "pod", "hypervisor", "vmm", "vmm_version", "machine_type")...),
		state: gauge("vmlet_vm_state", "Always 1, for the state that a VM is in.", of("state")...),
		sampled: gauge("vmlet_vm_sampled_timestamp_seconds",
			"When the VM's VMM last said what it has counted, in seconds since 1970.", of()...),
		charged: gauge("vmlet_vm_memory_charged_bytes",
			"Memory that the VM's cgroup is charged with: the guest's as far as it was touched, the VMM's, its shim's, and pages of files that they have read.", of()...),

		vmiInfo: vmi(gauge, "info", "Always 1, for each VM that has a VMM or is about to; phases are KubeVirt's.", "phase", "vmi_pod"),
		panics:  vmi(counter, "guest_os_panic_total", "Panics of the guest's kernel that were reported to this agent."),

		cpu:       vmi(counter, "cpu_usage_seconds_total", "CPU time of all that belongs to the VM: of its cgroup, or of the VMM's process if it has none."),
		cpuUser:   vmi(counter, "cpu_user_usage_seconds_total", "CPU time of it outside the kernel."),
		cpuSystem: vmi(counter, "cpu_system_usage_seconds_total", "CPU time of it inside the kernel."),
		vcpu:      vmi(counter, "vcpu_seconds_total", "CPU time of a virtual CPU's thread. The state is always running: every virtual CPU is online.", "id", "state"),
		vcpuWait: vmi(counter, "vcpu_wait_seconds_total",
			"How long a virtual CPU waited, as the scheduler's statistics have it (wait_sum). Only there with kernel.sched_schedstats=1.", "id"),
		vcpuDelay: vmi(counter, "vcpu_delay_seconds_total", "How long a virtual CPU could have run and something else did.", "id"),

		resident:    vmi(gauge, "memory_resident_bytes", "Memory that is mapped by the VMM's process, and there."),
		domain:      vmi(gauge, "memory_domain_bytes", "Memory that the VM was made with."),
		balloon:     vmi(gauge, "memory_actual_balloon_bytes", "Memory that the balloon leaves the guest."),
		available:   vmi(gauge, "memory_available_bytes", "All memory that the guest's kernel has, as the guest says."),
		unused:      vmi(gauge, "memory_unused_bytes", "Memory that the guest uses for nothing, as the guest says."),
		cached:      vmi(gauge, "memory_cached_bytes", "Memory that the guest uses for copies of what is on its disks, as the guest says."),
		usable:      vmi(gauge, "memory_usable_bytes", "Memory that the guest could give to new programs without swapping, as the guest says."),
		swapIn:      vmi(gauge, "memory_swap_in_traffic_bytes", "What the guest has read from its swap since it was booted, as the guest says."),
		swapOut:     vmi(gauge, "memory_swap_out_traffic_bytes", "What the guest has written to its swap since it was booted, as the guest says."),
		majorFaults: vmi(counter, "memory_pgmajfault_total", "Page faults in the guest that needed a disk, as the guest says."),
		minorFaults: vmi(counter, "memory_pgminfault_total", "Page faults in the guest that needed none, as the guest says."),

		reads:        vmi(counter, "storage_iops_read_total", "Reads that the guest has made, by disk.", "drive"),
		writes:       vmi(counter, "storage_iops_write_total", "Writes that the guest has made, by disk.", "drive"),
		flushes:      vmi(counter, "storage_flush_requests_total", "Flushes that the guest has asked for, by disk.", "drive"),
		readBytes:    vmi(counter, "storage_read_traffic_bytes_total", "Bytes that the guest has read, by disk.", "drive"),
		writtenBytes: vmi(counter, "storage_write_traffic_bytes_total", "Bytes that the guest has written, by disk.", "drive"),
		readTime:     vmi(counter, "storage_read_times_seconds_total", "How long reads took, all together, by disk.", "drive"),
		writeTime:    vmi(counter, "storage_write_times_seconds_total", "How long writes took, all together, by disk.", "drive"),
		flushTime:    vmi(counter, "storage_flush_times_seconds_total", "How long flushes took, all together, by disk.", "drive"),

		received:    flow("receive", "received"),
		transmitted: flow("transmit", "sent"),
	}
}

// all are the metrics, for whoever lists them.
func (m vmMetrics) all() []Metric {
	return []Metric{
		m.info, m.state, m.sampled, m.charged, m.vmiInfo, m.panics,
		m.cpu, m.cpuUser, m.cpuSystem, m.vcpu, m.vcpuWait, m.vcpuDelay,
		m.resident, m.domain, m.balloon, m.available, m.unused, m.cached, m.usable,
		m.swapIn, m.swapOut, m.majorFaults, m.minorFaults,
		m.reads, m.writes, m.flushes, m.readBytes, m.writtenBytes, m.readTime, m.writeTime, m.flushTime,
		m.received.bytes, m.received.packets, m.received.errors, m.received.dropped,
		m.transmitted.bytes, m.transmitted.packets, m.transmitted.errors, m.transmitted.dropped,
	}
}
