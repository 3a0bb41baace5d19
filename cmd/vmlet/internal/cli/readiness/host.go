package readiness

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/proto/vmlet/capabilities/v1/fact"
	"github.com/vmlet/vmlet/sysfs"
)

func processor(doc *capabilitiesv1.Capabilities) []Check {
	h := doc.GetHost()
	if h == nil {
		h = new(capabilitiesv1.HostCapabilities)
	}
	cpu := h.GetCpu()
	model := Check{Mark: Pass, Name: "model", Finding: cpu.GetModelName()}
	if model.Finding == "" && cpu.GetVendor() == "" {
		model.Mark, model.Finding = Info, "unknown"
	}
	if !strings.Contains(model.Finding, cpu.GetVendor()) {
		model.Finding += " (" + cpu.GetVendor() + ")"
	}
	if cpu.GetThreads() > 0 {
		model.Details = append(model.Details, fmt.Sprintf("%s, %s, %s; online %s",
			plural(int(cpu.GetPackages()), "package"), plural(int(cpu.GetCores()), "core"), plural(int(cpu.GetThreads()), "thread"), cpu.GetOnline()))
	}
	if cpu.GetIsolated() != "" {
		model.Details = append(model.Details, "isolated from the scheduler: "+cpu.GetIsolated())
	}
	all := []Check{model}
	if c, ok := vulnerabilities(h.GetVulnerabilities()); ok {
		all = append(all, c)
	}
	all = append(all, clocksource(h.GetClocksource())...)
	if h.Nested != nil {
		c := Check{Mark: Pass, Name: "nested", Finding: "guests may have guests"}
		if !h.GetNested() {
			c = Check{Mark: Info, Name: "nested", Finding: "guests can't have guests",
				Remedy: "load the module with it on: modprobe -r kvm_intel && modprobe kvm_intel nested=1 (AMD: kvm_amd)"}
		}
		all = append(all, c)
	}
	if h.Realtime != nil {
		c := Check{Mark: Pass, Name: "realtime", Finding: "realtime guests may take their CPUs whole"}
		if !h.GetRealtime() {
			c = Check{Mark: Info, Name: "realtime", Finding: "realtime tasks are throttled",
				Remedy: "for realtime guests: sysctl -w kernel.sched_rt_runtime_us=-1"}
		}
		all = append(all, c)
	}
	return all
}

func vulnerabilities(all map[string]string) (Check, bool) {
	if len(all) == 0 {
		return Check{}, false
	}
	var open []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(all[name], "Vulnerable") {
			open = append(open, name)
		}
	}
	if len(open) == 0 {
		return Check{Mark: Pass, Name: "vulnerabilities", Finding: fmt.Sprintf("none of the %d that the kernel knows is open", len(all))}, true
	}
	return Check{Mark: Warn, Name: "vulnerabilities", Finding: "open: " + strings.Join(open, ", "),
		Remedy: "update microcode and kernel; look whether mitigations= is on the kernel's command line"}, true
}

func clocksource(name string) []Check {
	switch name {
	case "":
		return nil
	case "hpet", "acpi_pm", "jiffies":
		return []Check{{Mark: Warn, Name: "clocksource", Finding: name + " is slow to read, for guests too",
			Remedy: "see in the kernel's log (dmesg) why the TSC was given up"}}
	}
	return []Check{{Mark: Pass, Name: "clocksource", Finding: name}}
}

func memory(doc *capabilitiesv1.Capabilities) []Check {
	h := doc.GetHost()
	if h == nil {
		return nil
	}
	var all []Check
	if n := h.GetNumaNodes(); len(n) > 0 {
		c := Check{Mark: Pass, Name: "NUMA", Finding: plural(len(n), "node")}
		var sum uint64
		for _, node := range n {
			c.Details = append(c.Details, numaNode(node))
			sum += node.GetMemoryBytes()
		}
		if sysfs.NodeMemoryDiffers(h.GetMemoryBytes(), sum) {
			c.Details = append(c.Details, fmt.Sprintf("together %s, and the machine has %s: the kernel says both", bytes(sum), bytes(h.GetMemoryBytes())))
		}
		all = append(all, c)
	}
	if h.GetMemoryBytes() == 0 && len(h.GetHugePages()) == 0 {
		return all // nothing of it could be read
	}
	all = append(all, hugePages(h.GetHugePages()))
	if t := h.GetTransparentHugePages(); t != "" {
		all = append(all, Check{Mark: Pass, Name: "transparent", Finding: "transparent huge pages: " + t})
	}
	if h.KsmEnabled != nil {
		c := Check{Mark: Pass, Name: "KSM", Finding: "on"}
		if !h.GetKsmEnabled() {
			c = Check{Mark: Info, Name: "KSM", Finding: "off; guest memory that vmlet maps shared isn't merged in any case"}
		}
		all = append(all, c)
	}
	swap := "none"
	if h.GetSwapBytes() > 0 {
		swap = bytes(h.GetSwapBytes())
	}
	return append(all, Check{Mark: Info, Name: "swap", Finding: swap})
}

func numaNode(n *capabilitiesv1.NumaNode) string {
	cpus := "no CPUs"
	if n.GetCpus() != "" {
		cpus = "CPUs " + n.GetCpus()
	}
	memory := bytes(n.GetMemoryBytes())
	if n.GetMemoryBytes() == 0 {
		memory = "no memory, as far as is known"
	}
	return fmt.Sprintf("node %d: %s, %s", n.GetId(), memory, cpus)
}

func hugePages(pools []*capabilitiesv1.HugePagePool) Check {
	c := Check{Mark: Pass, Name: "huge pages"}
	var sizes, filled []string
	for _, p := range pools {
		sizes = append(sizes, bytes(p.GetPageSizeBytes()))
		if p.GetTotal() > 0 {
			filled = append(filled, fmt.Sprintf("%d of %s", p.GetTotal(), bytes(p.GetPageSizeBytes())))
		}
	}
	switch {
	case len(pools) == 0:
		c.Mark, c.Finding = Info, "this kernel has none"
	case len(filled) == 0:
		c.Mark, c.Finding = Info, "none is set aside; sizes: "+strings.Join(sizes, ", ")
		c.Remedy = "for VMs that ask for them: sysctl -w vm.nr_hugepages=N, or hugepagesz= and hugepages= on the kernel's command line"
	default:
		c.Finding = strings.Join(filled, ", ")
	}
	return c
}

func devices(doc *capabilitiesv1.Capabilities) []Check {
	without := map[string]string{
		"tun": "no VM can have a tap", "vhost-net": "networks of VMs are slower", "vhost-vsock": "no VM with QEMU can have a vsock",
	}
	var all []Check
	for _, d := range doc.GetDevices() {
		// Those of hypervisors and of confidential computing are reported there.
		hypervisors := slices.ContainsFunc(doc.GetHypervisors(), func(h *capabilitiesv1.HypervisorCapabilities) bool { return h.GetDevice() == d.GetPath() })
		if hypervisors || d.GetName() == "sev" {
			continue
		}
		c := Check{Name: d.GetName(), Mark: Pass, Finding: d.GetPath(), Remedy: d.GetRemedy()}
		if d.GetState() != works {
			c.Mark, c.Finding = Warn, d.GetReason()
			consequence, needed := without[d.GetName()]
			if needed {
				c.Finding += "; " + consequence
			} else if d.GetState() == absent {
				c.Mark = Info
			}
		}
		all = append(all, c)
	}
	return all
}

// passthrough is whether host devices can be given to guests.
func passthrough(doc *capabilitiesv1.Capabilities) []Check {
	groups, vfio := doc.GetHost().GetIommuGroups(), doc.GetHost().GetVfio()
	switch {
	case groups == nil || groups.GetTotal() == 0 && !told(doc, fact.HostIOMMUGroups):
		return nil // what is unknown is reported once
	case groups.GetTotal() == 0:
		return []Check{{Mark: Info, Name: "IOMMU", Finding: "no IOMMU group: no host device can be given to a guest", Remedy: iommuRemedy(doc)}}
	}
	all := []Check{{Mark: Pass, Name: "IOMMU", Finding: fmt.Sprintf("%s: %d can be given to a guest as they are", plural(int(groups.GetTotal()), "group"), groups.GetViable())}}
	if vfio.GetNoIommu() {
		all = append(all, Check{Mark: Warn, Name: "VFIO", Finding: "enable_unsafe_noiommu_mode is on: a guest with a device can write to all of memory",
			Remedy: "set /sys/module/vfio/parameters/enable_unsafe_noiommu_mode to N"})
	}
	if len(vfio.GetModules()) == 0 {
		all = append(all, Check{Mark: Info, Name: "VFIO", Finding: "no VFIO module is loaded", Remedy: "to give devices to guests: modprobe vfio-pci"})
	} else {
		all = append(all, Check{Mark: Pass, Name: "VFIO", Finding: "modules: " + strings.Join(vfio.GetModules(), ", ")})
	}
	return all
}

func iommuRemedy(doc *capabilitiesv1.Capabilities) string {
	switch doc.GetArchitecture() {
	case "amd64":
		return "enable VT-d or AMD-Vi in firmware; on Intel, put intel_iommu=on on the kernel's command line"
	case "arm64":
		return "enable the SMMU in firmware"
	}
	return ""
}

// permitted are the existing devices that the configuration permits.
func permitted(doc *capabilitiesv1.Capabilities) []Check {
	var all []Check
	for _, r := range doc.GetHostDevices() {
		c := Check{Mark: Pass, Name: r.GetResource(), Finding: plural(len(r.GetDevices()), "device")}
		if len(r.GetDevices()) > 0 {
			c.Finding += ": " + strings.Join(r.GetDevices(), ", ")
		} else {
			c.Mark = Warn
		}
		if r.GetExternal() {
			c.Details = append(c.Details, "another device plugin offers it")
		}
		for _, o := range r.GetObstacles() {
			c.Mark = Warn
			c.Details = append(c.Details, o.GetDevice()+": "+o.GetReason()+" => "+o.GetRemedy())
		}
		if len(r.GetDevices())+len(r.GetObstacles()) == 0 {
			c.Remedy = "no device of this machine is meant: look at permittedHostDevices in the agent's configuration"
		}
		all = append(all, c)
	}
	return all
}

func confidential(doc *capabilitiesv1.Capabilities) []Check {
	c := doc.GetConfidentialComputing()
	var all []Check
	for _, f := range []struct {
		name    string
		feature *capabilitiesv1.ConfidentialFeature
	}{{"SEV", c.GetSev()}, {"SEV-ES", c.GetSevEs()}, {"SEV-SNP", c.GetSevSnp()}, {"TDX", c.GetTdx()}, {"s390 PV", c.GetS390Pv()}} {
		switch {
		case f.feature.GetSupported():
			all = append(all, Check{Mark: Pass, Name: f.name, Finding: "supported"})
		case f.feature.GetReason() != "":
			all = append(all, Check{Mark: Info, Name: f.name, Finding: "not supported: " + f.feature.GetReason()})
		}
	}
	if len(all) == 0 && c != nil && doc.GetHost().GetCpu().GetVendor() != "" {
		all = []Check{{Mark: Info, Name: "any", Finding: "the processor has nothing of the kind"}}
	}
	return all
}
