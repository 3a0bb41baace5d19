package chtest

import (
	"crypto/rand"
	"net"
)

// The bodies of version 53, from vmm/src/vm_config.rs, vmm/src/api/mod.rs and
// vmm/src/config.rs: names, types and defaults of what chapi has members for. Other
// members are dropped, as the real one drops those that it doesn't know.

func pciFields() []field {
	return []field{may("id", text), def("iommu", boolean, false), def("pci_segment", unsigned(16), uint64(0)), may("pci_device_id", unsigned(8))}
}

func diskShape() shape {
	return record(pciFields(), []field{
		may("path", text), def("readonly", boolean, false), def("direct", boolean, false),
		def("num_queues", unsigned(64), uint64(1)), def("queue_size", unsigned(16), uint64(128)),
		def("disable_io_uring", boolean, false), def("disable_aio", boolean, false), may("serial", text),
		def("backing_files", boolean, false), def("sparse", boolean, true),
		def("image_type", oneOf("FixedVhd", "Qcow2", "Raw", "Vhdx", "Unknown"), "Unknown"),
		def("lock_granularity", oneOf("ByteRange", "Full"), "ByteRange"),
	})
}

func netShape() shape {
	mac := field{name: "mac", shape: hardwareAddress, fallback: randomAddress}
	return record(pciFields(), []field{
		may("tap", text), mac, may("mtu", unsigned(16)),
		def("num_queues", unsigned(64), uint64(2)), def("queue_size", unsigned(16), uint64(256)), may("fds", deadDescriptors),
		def("offload_tso", boolean, true), def("offload_ufo", boolean, true), def("offload_csum", boolean, true),
	})
}

func randomAddress() any {
	address := make(net.HardwareAddr, 6)
	rand.Read(address) // never fails
	address[0] = address[0]&^1 | 2
	return address.String()
}

func vsockShape() shape {
	return record(pciFields(), []field{need("cid", unsigned(32)), need("socket", text)})
}

func deviceShape() shape { return record(pciFields(), []field{may("path", text)}) }

func cpusShape() shape {
	return record([]field{
		need("boot_vcpus", unsigned(32)), need("max_vcpus", unsigned(32)),
		may("topology", record([]field{need("threads_per_core", unsigned(16)), need("cores_per_die", unsigned(16)),
			need("dies_per_package", unsigned(16)), need("packages", unsigned(16))})),
		def("kvm_hyperv", boolean, false), def("max_phys_bits", unsigned(8), uint64(46)),
		may("affinity", list(record([]field{need("vcpu", unsigned(32)), need("host_cpus", list(unsigned(64)))}))),
		def("features", record([]field{def("amx", boolean, false)}), tree{"amx": false}),
		def("nested", boolean, true),
	})
}

func memoryFields() []field {
	return []field{need("size", unsigned(64)), def("mergeable", boolean, false), may("hotplug_size", unsigned(64)),
		def("shared", boolean, false), def("hugepages", boolean, false), may("hugepage_size", unsigned(64)),
		def("prefault", boolean, false)}
}

func memoryShape() shape {
	zone := record(memoryFields(), []field{need("id", text), may("file", text), may("host_numa_node", unsigned(32))})
	return record(memoryFields(), []field{def("hotplug_method", oneOf("Acpi", "VirtioMem"), "Acpi"),
		may("zones", list(zone)), def("thp", boolean, true)})
}

func consoleFields() []field {
	return []field{may("file", text), need("mode", oneOf("Off", "Pty", "Tty", "File", "Socket", "Null")), may("socket", text)}
}

func platformShape() shape {
	return record([]field{
		def("num_pci_segments", unsigned(16), uint64(1)),
		{name: "system_serial_number", shape: text, alias: "serial_number"}, {name: "system_uuid", shape: text, alias: "uuid"},
		may("oem_strings", list(text)), def("iommufd", boolean, false),
	})
}

func numaShape() shape {
	return record([]field{need("guest_numa_id", unsigned(32)), may("cpus", list(unsigned(32))),
		may("distances", list(record([]field{def("destination", unsigned(32), uint64(0)), def("distance", unsigned(8), uint64(0))}))),
		may("memory_zones", list(text)), may("pci_segments", list(unsigned(16)))})
}

func vmShape() shape {
	rng := record(pciFields(), []field{need("src", text)})
	console := record(consoleFields(), pciFields())
	return record([]field{
		{name: "cpus", shape: cpusShape(), fallback: ofNothing(cpusShape(), `{"boot_vcpus":1,"max_vcpus":1}`)},
		{name: "memory", shape: memoryShape(), fallback: ofNothing(memoryShape(), `{"size":536870912}`)},
		may("payload", record([]field{may("firmware", text), may("kernel", text), may("cmdline", text), may("initramfs", text)})),
		may("disks", list(diskShape())), may("net", list(netShape())),
		{name: "rng", shape: rng, fallback: ofNothing(rng, `{"src":"/dev/urandom"}`)},
		may("balloon", record(pciFields(), []field{need("size", unsigned(64)), def("deflate_on_oom", boolean, false), def("free_page_reporting", boolean, false)})),
		def("serial", record(consoleFields()), tree{"mode": "Null"}),
		{name: "console", shape: console, fallback: ofNothing(console, `{"mode":"Tty"}`)},
		may("devices", list(deviceShape())), may("vsock", vsockShape()),
		def("pvpanic", boolean, false), may("numa", list(numaShape())), def("watchdog", boolean, false),
		may("platform", platformShape()), may("tpm", record([]field{need("socket", text)})),
		def("landlock_enable", boolean, false), may("landlock_rules", list(record([]field{need("path", text), need("access", text)}))),
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
	return record([]field{may("desired_vcpus", unsigned(32)), may("desired_ram", unsigned(64)), may("desired_balloon", unsigned(64))})
}

func resizeZoneShape() shape {
	return record([]field{need("id", text), need("desired_ram", unsigned(64))})
}

func removeShape() shape { return record([]field{need("id", text)}) }

func snapshotShape() shape { return record([]field{need("destination_url", text)}) }

func restoreShape() shape {
	return record([]field{need("source_url", text), def("prefault", boolean, false), def("resume", boolean, false),
		def("memory_restore_mode", oneOf("Copy", "OnDemand"), "Copy"),
		may("net_fds", list(record([]field{need("id", text), def("num_fds", unsigned(64), uint64(0)), may("fds", deadDescriptors)})))})
}
