package chtest

import (
	"crypto/rand"
	"net"
)

// The bodies of version 53, from vmm/src/vm_config.rs, vmm/src/api/mod.rs and
// vmm/src/config.rs: names, types, defaults.

func pciFields() []field {
	return []field{may("id", text), def("iommu", boolean, false), def("pci_segment", unsigned(16), uint64(0)), may("pci_device_id", unsigned(8))}
}

func diskShape() shape {
	return record(false, pciFields(), []field{
		may("path", text), def("readonly", boolean, false), def("direct", boolean, false),
		def("num_queues", unsigned(64), uint64(1)), def("queue_size", unsigned(16), uint64(128)),
		def("vhost_user", boolean, false), may("vhost_socket", text),
		may("rate_limit_group", text), may("rate_limiter_config", rateLimiter()),
		def("disable_io_uring", boolean, false), def("disable_aio", boolean, false),
		may("serial", text), may("queue_affinity", list(record(false, []field{
			need("queue_index", unsigned(16)), need("host_cpus", list(unsigned(64)))}))),
		def("backing_files", boolean, false), def("sparse", boolean, true),
		def("image_type", oneOf("FixedVhd", "Qcow2", "Raw", "Vhdx", "Unknown"), "Unknown"),
		def("lock_granularity", oneOf("ByteRange", "Full"), "ByteRange"),
	})
}

func rateLimiter() shape {
	bucket := record(false, []field{need("size", unsigned(64)), may("one_time_burst", unsigned(64)), need("refill_time", unsigned(64))})
	return record(true, []field{may("bandwidth", bucket), may("ops", bucket)})
}

func netShape() shape {
	mac := field{name: "mac", shape: hardwareAddress, fallback: randomAddress}
	return record(false, pciFields(), []field{
		may("tap", text), may("ip", ipAddress), may("mask", ipAddress), mac,
		may("host_mac", hardwareAddress), may("mtu", unsigned(16)),
		def("num_queues", unsigned(64), uint64(2)), def("queue_size", unsigned(16), uint64(256)),
		def("vhost_user", boolean, false), may("vhost_socket", text), def("vhost_mode", oneOf("Client", "Server"), "Client"),
		may("fds", deadDescriptors), may("rate_limiter_config", rateLimiter()),
		def("offload_tso", boolean, true), def("offload_ufo", boolean, true), def("offload_csum", boolean, true),
	})
}

func randomAddress() any {
	address := make(net.HardwareAddr, 6)
	rand.Read(address) // never fails
	address[0] = address[0]&^1 | 2
	return address.String()
}

func fsShape() shape {
	return record(false, pciFields(), []field{need("tag", text), need("socket", text),
		def("num_queues", unsigned(64), uint64(1)), def("queue_size", unsigned(16), uint64(1024))})
}

func genericShape() shape {
	return record(false, pciFields(), []field{need("socket", text), need("queue_sizes", list(unsigned(16))), need("device_type", unsigned(32))})
}

func pmemShape() shape {
	return record(false, pciFields(), []field{need("file", text), may("size", unsigned(64)), def("discard_writes", boolean, false)})
}

func vsockShape() shape {
	return record(false, pciFields(), []field{need("cid", unsigned(32)), need("socket", text)})
}

func vdpaShape() shape {
	return record(false, pciFields(), []field{need("path", text), def("num_queues", unsigned(64), uint64(1))})
}

func deviceShape() shape {
	return record(false, pciFields(), []field{may("path", text), may("fd", deadDescriptor),
		may("x_nv_gpudirect_clique", unsigned(8)), def("x_exclude_mmap_bars", list(unsigned(64)), []any{})})
}

func userDeviceShape() shape { return record(false, pciFields(), []field{need("socket", text)}) }

func cpusShape() shape {
	return record(false, []field{
		need("boot_vcpus", unsigned(32)), need("max_vcpus", unsigned(32)),
		may("topology", record(false, []field{need("threads_per_core", unsigned(16)), need("cores_per_die", unsigned(16)),
			need("dies_per_package", unsigned(16)), need("packages", unsigned(16))})),
		def("kvm_hyperv", boolean, false), def("max_phys_bits", unsigned(8), uint64(46)),
		may("affinity", list(record(false, []field{need("vcpu", unsigned(32)), need("host_cpus", list(unsigned(64)))}))),
		def("features", record(false, []field{def("amx", boolean, false)}), tree{"amx": false}),
		def("nested", boolean, true), def("core_scheduling", oneOf("Vm", "Vcpu", "Off"), "Vm"), def("profile", oneOf("Host"), "Host"),
	})
}

func memoryFields() []field {
	return []field{need("size", unsigned(64)), def("mergeable", boolean, false), may("hotplug_size", unsigned(64)), may("hotplugged_size", unsigned(64)),
		def("shared", boolean, false), def("hugepages", boolean, false), may("hugepage_size", unsigned(64)),
		def("prefault", boolean, false), def("reserve", boolean, false)}
}

func memoryShape() shape {
	zone := record(false, memoryFields(), []field{need("id", text), may("file", text), may("host_numa_node", unsigned(32))})
	return record(false, memoryFields(), []field{def("hotplug_method", oneOf("Acpi", "VirtioMem"), "Acpi"),
		may("zones", list(zone)), def("thp", boolean, true)})
}

func consoleFields() []field {
	return []field{may("file", text), need("mode", oneOf("Off", "Pty", "Tty", "File", "Socket", "Null")), may("socket", text)}
}

func platformShape() shape {
	return record(false, []field{
		def("num_pci_segments", unsigned(16), uint64(1)), may("iommu_segments", list(unsigned(16))), def("iommu_address_width_bits", unsigned(8), uint64(64)),
		{name: "system_serial_number", shape: text, alias: "serial_number"}, {name: "system_uuid", shape: text, alias: "uuid"},
		may("oem_strings", list(text)), may("system_manufacturer", text), may("system_product_name", text), may("system_version", text),
		may("system_family", text), may("system_sku_number", text), may("chassis_asset_tag", text),
		def("iommufd", boolean, false), may("iommufd_fd", deadDescriptor), def("vfio_p2p_dma", boolean, true),
	})
}

func numaShape() shape {
	return record(false, []field{need("guest_numa_id", unsigned(32)), may("cpus", list(unsigned(32))),
		may("distances", list(record(false, []field{def("destination", unsigned(32), uint64(0)), def("distance", unsigned(8), uint64(0))}))),
		may("memory_zones", list(text)), may("pci_segments", list(unsigned(16))), may("device_id", text)})
}

func vmShape() shape {
	return record(false, []field{
		{name: "cpus", shape: cpusShape(), fallback: ofNothing(cpusShape(), `{"boot_vcpus":1,"max_vcpus":1}`)},
		{name: "memory", shape: memoryShape(), fallback: ofNothing(memoryShape(), `{"size":536870912}`)},
		may("payload", record(false, []field{may("firmware", text), may("kernel", text), may("cmdline", text), may("initramfs", text)})),
		may("rate_limit_groups", list(record(false, []field{def("id", text, ""), def("rate_limiter_config", rateLimiter(), tree{})}))),
		may("disks", list(diskShape())), may("net", list(netShape())),
		{name: "rng", shape: record(false, pciFields(), []field{need("src", text)}), fallback: ofNothing(record(false, pciFields(), []field{need("src", text)}), `{"src":"/dev/urandom"}`)},
		may("balloon", record(false, pciFields(), []field{need("size", unsigned(64)), def("deflate_on_oom", boolean, false), def("free_page_reporting", boolean, false)})),
		may("generic_vhost_user", list(genericShape())), may("fs", list(fsShape())), may("pmem", list(pmemShape())),
		def("serial", record(false, consoleFields()), tree{"mode": "Null"}),
		{name: "console", shape: record(false, consoleFields(), pciFields()), fallback: ofNothing(record(false, consoleFields(), pciFields()), `{"mode":"Tty"}`)},
		def("debug_console", record(false, consoleFields(), []field{may("iobase", unsigned(16))}), tree{"mode": "Off", "iobase": uint64(0xe9)}),
		may("devices", list(deviceShape())), may("user_devices", list(userDeviceShape())), may("vdpa", list(vdpaShape())), may("vsock", vsockShape()),
		def("pvpanic", boolean, false), def("iommu", boolean, false), may("numa", list(numaShape())), def("watchdog", boolean, false), may("rtc", record(false, pciFields())),
		may("pci_segments", list(record(false, []field{def("pci_segment", unsigned(16), uint64(0)),
			def("mmio32_aperture_weight", unsigned(32), uint64(1)), def("mmio64_aperture_weight", unsigned(32), uint64(1))}))),
		may("platform", platformShape()), may("tpm", record(false, []field{need("socket", text)})),
		def("landlock_enable", boolean, false), may("landlock_rules", list(record(false, []field{need("path", text), need("access", text)}))),
	})
}

// ofNothing is a default that is itself an object, made anew each time.
func ofNothing(s shape, body string) func() any {
	return func() any {
		value, err := s([]byte(body))
		if err != nil {
			return nil
		}
		return value
	}
}

func resizeShape() shape {
	return record(false, []field{may("desired_vcpus", unsigned(32)), may("desired_ram", unsigned(64)), may("desired_balloon", unsigned(64))})
}

func resizeDiskShape() shape {
	return record(false, []field{need("id", text), need("desired_size", unsigned(64))})
}

func resizeZoneShape() shape {
	return record(false, []field{need("id", text), need("desired_ram", unsigned(64))})
}

func removeShape() shape { return record(false, []field{need("id", text)}) }

func snapshotShape() shape { return record(false, []field{need("destination_url", text)}) }

// restoreShape is without memory_restore_mode in a version before 52: it is then
// a field that isn't known, and so of no effect.
func restoreShape(onDemand bool) shape {
	fields := []field{need("source_url", text), def("prefault", boolean, false), def("resume", boolean, false),
		may("net_fds", list(record(false, []field{need("id", text), def("num_fds", unsigned(64), uint64(0)), may("fds", deadDescriptors)})))}
	if onDemand {
		fields = append(fields, def("memory_restore_mode", oneOf("Copy", "OnDemand"), "Copy"))
	}
	return record(false, fields)
}
