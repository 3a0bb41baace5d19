package sysfs

import (
	"slices"
	"strconv"
	"strings"
)

// virtualization reads what the hypervisors' modules and the firmware say.
func (r processorReader) virtualization(h *Host) {
	v := &h.Virtualization
	v.Guest = r.guest(h)
	v.Modules = map[string]map[string]string{}
	for _, name := range r.names(r.sys("module")) {
		if isWord(name) && (name == "kvm" || strings.HasPrefix(name, "kvm_") || strings.HasPrefix(name, "mshv")) {
			v.Modules[name] = r.parameters(r.sys("module/" + name + "/parameters"))
		}
	}
	v.Nested = r.nested(v.Modules)
	v.Misc = r.misc()
	if n, ok := r.number(r.sys("firmware/uv/prot_virt_host")); ok {
		host := n == 1
		v.S390ProtectedHost = &host
	}
}

// guest reports whether this machine is itself a VM: by the CPU's flag on x86,
// by the firmware's tables elsewhere.
func (r processorReader) guest(h *Host) bool {
	if slices.Contains(h.Processor.Flags, "hypervisor") {
		return true
	}
	// s390x: level 00 of the VMs that it runs in (STSI 3.2.2), if there is one.
	if text, ok := r.text(r.proc("sysinfo")); ok && strings.Contains(text, "VM00 ") {
		return true
	}
	// arm64 and POWER: the device tree of a VM says who made it.
	return r.exists(r.sys("firmware/devicetree/base/hypervisor/compatible"))
}

// parameters reads a module's; one that has none has no such folder.
func (r processorReader) parameters(path string) map[string]string {
	values := map[string]string{}
	for _, name := range r.names(path) {
		if text, ok := r.text(path + "/" + name); ok && isWord(name) {
			values[name] = printable(text)
		}
	}
	return values
}

// nested is nil if no module says.
func (r processorReader) nested(modules map[string]map[string]string) *bool {
	var answer *bool
	for _, name := range []string{"kvm", "kvm_intel", "kvm_amd", "kvm_hv"} {
		text, told := modules[name]["nested"]
		if !told {
			continue
		}
		// Booleans are "Y" and "N"; s390x and older kernels have numbers.
		yes := text == "Y" || text == "1"
		if !yes && text != "N" && text != "0" {
			r.note(r.sys("module/"+name+"/parameters/nested"), "%.40q is neither Y nor N", text)
			continue
		}
		if answer == nil || yes {
			answer = &yes
		}
	}
	return answer
}

// misc reads the capacities of the misc controller, which only the root of its
// hierarchy has: of version 2 alone, of version 2 beside 1, or of version 1
// (Documentation/admin-guide/cgroup-v2.rst, Misc).
func (r processorReader) misc() map[string]uint64 {
	for _, mount := range []string{"", "unified/", "misc/"} {
		path := r.sys("fs/cgroup/" + mount + "misc.capacity")
		text, ok := r.text(path)
		if !ok {
			continue
		}
		capacities := map[string]uint64{}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil || !isWord(name) {
				r.note(path, "%.40q is no capacity", line)
				continue
			}
			capacities[name] = n
		}
		return capacities
	}
	return nil
}
