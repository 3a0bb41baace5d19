package sysfstest

import (
	"fmt"
	"slices"
	"strings"
)

// pid is of the process that /proc/self is a link to.
const pid = 4711

// proc writes what is read of /proc, and the clocks and weaknesses.
func (w *writer) proc() {
	w.Raw("proc/cpuinfo", w.cpuinfo())
	w.Printf("proc/meminfo", "MemTotal:       %8d kB\nMemFree:        %8d kB\nMemAvailable:   %8d kB\nSwapTotal:      %8d kB\nSwapFree:       %8d kB",
		w.m.Memory>>10, w.m.Memory>>11, w.m.Memory*3/4>>10, w.m.Swap>>10, w.m.Swap>>10)
	w.File("proc/sys/kernel/osrelease", "6.12.48")
	w.File("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC Thu Sep 25 12:00:00 UTC 2025")
	w.File("proc/sys/kernel/sched_rt_runtime_us", "950000")
	allowed, nodes := w.m.Allowed, w.m.AllowedNodes
	if allowed == nil {
		allowed = w.m.ids()
	}
	if nodes == nil {
		for _, node := range w.m.Nodes {
			nodes = append(nodes, node.ID)
		}
	}
	w.RawLink("proc/self", fmt.Sprint(pid))
	w.Printf(fmt.Sprintf("proc/%d/status", pid), "Name:\tvmlet\nPid:\t%d\nCpus_allowed:\t%s\nCpus_allowed_list:\t%s\nMems_allowed_list:\t%s",
		pid, Mask(allowed, w.size), List(allowed), List(nodes))
	w.File(fmt.Sprintf("proc/%d/cgroup", pid), "0::/system.slice/vmlet.service")
	const clock = "sys/devices/system/clocksource/clocksource0/"
	clocks := map[string]string{"amd64": "tsc hpet acpi_pm", "arm64": "arch_sys_counter", "s390x": "tod", "ppc64le": "timebase"}[w.m.Arch]
	w.File(clock+"available_clocksource", clocks+" ")
	w.File(clock+"current_clocksource", strings.Fields(clocks)[0])
	const faults = "sys/devices/system/cpu/vulnerabilities/"
	w.File(faults+"meltdown", "Not affected")
	w.File(faults+"spec_store_bypass", "Mitigation: Speculative Store Bypass disabled via prctl")
}

// cpuinfo has a part for each CPU that is online, in the architecture's format.
func (w *writer) cpuinfo() string {
	var b strings.Builder
	var online []cpu
	for _, c := range w.cpus {
		if w.online[c.id] {
			online = append(online, c)
		}
	}
	slices.SortFunc(online, func(a, b cpu) int { return a.id - b.id })
	if w.m.Arch == "s390x" {
		fmt.Fprintf(&b, "vendor_id       : IBM/S390\n# processors    : %d\nbogomips per cpu: 3033.00\nmax thread id   : 0\n"+
			"features\t: esan3 zarch stfle msa ldisp eimm dfp edat etf3eh highgprs te vx sie\nfacilities      : 0 1 2 3 4 6 7 8\n", len(online))
	}
	for _, c := range online {
		switch w.m.Arch {
		case "s390x":
			fmt.Fprintf(&b, "processor %d: version = 00,  identification = 0133E8,  machine = 8561\n", c.id)
		case "arm64":
			fmt.Fprintf(&b, "processor\t: %d\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics\n"+
				"CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n\n", c.id)
		case "ppc64le":
			fmt.Fprintf(&b, "processor\t: %d\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 2750.000000MHz\nrevision\t: 2.2 (pvr 004e 1202)\n\n", c.id)
		default:
			fmt.Fprintf(&b, "processor\t: %d\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"+
				"model name\t: Intel(R) Xeon(R) Platinum 8480+\nstepping\t: 8\nmicrocode\t: 0x2b000603\nphysical id\t: %d\ncore id\t\t: %d\n"+
				"flags\t\t: fpu vme de pse tsc msr pae lm vmx nx constant_tsc nonstop_tsc\n\n", c.id, c.packageID, c.coreID)
		}
	}
	if w.m.Arch == "ppc64le" {
		b.WriteString("timebase\t: 512000000\nplatform\t: PowerNV\nmodel\t\t: 9006-22P\nmachine\t\t: PowerNV 9006-22P\n")
	}
	return b.String()
}
