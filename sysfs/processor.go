package sysfs

import (
	"slices"
	"strconv"
	"strings"
)

// kernel reads what is known of the Linux that runs.
func (r processorReader) kernel(h *Host) {
	k := &h.Kernel
	k.Release = r.words(r.proc("sys/kernel/osrelease"))
	k.Version = r.words(r.proc("sys/kernel/version"))
	const clock = "devices/system/clocksource/clocksource0/"
	k.Clocksource = r.words(r.sys(clock + "current_clocksource"))
	k.Clocksources = strings.Fields(r.words(r.sys(clock + "available_clocksource")))
	if n, ok := r.number(r.proc("sys/kernel/sched_rt_runtime_us")); ok {
		k.RealtimeRuntime = &n
	}
}

// words reads a line that people read, made printable.
func (r processorReader) words(path string) string {
	text, _ := r.text(path)
	return printable(text)
}

// processor reads the first CPU's part of /proc/cpuinfo. Not with procfs: that
// knows only the format of the architecture that it is built for, and reads the
// parts of all CPUs, which takes the kernel long on a large machine.
func (r processorReader) processor(h *Host) {
	p := &h.Processor
	path := r.proc("cpuinfo")
	text, _ := r.head(path, maxCPUInfo)
	info := parseCPUInfo(text)
	r.identify(path, p, info)
	h.Architecture = r.architecture(info)
	// Not in Linux itself, but in many distributions' kernels, in kHz. The
	// frequencies of cpufreq are rounded and are not the TSC's.
	p.TSCFrequency = r.scaled(r.sys("devices/system/cpu/cpu0/tsc_freq_khz"), 1000)
	folder := r.sys("devices/system/cpu/vulnerabilities")
	for _, name := range r.names(folder) {
		if text := r.words(folder + "/" + name); text != "" && isWord(name) {
			if p.Vulnerabilities == nil {
				p.Vulnerabilities = map[string]string{}
			}
			p.Vulnerabilities[name] = text
		}
	}
}

// goArchitecture is Go's name of an architecture by Linux's (uname -m); empty: it
// has none.
func goArchitecture(machine string) string {
	switch machine {
	case "x86_64":
		return "amd64"
	case "i686":
		return "386"
	case "aarch64":
		return "arm64"
	case "armv7l":
		return "arm"
	case "loongarch64":
		return "loong64"
	case "s390x", "ppc64le", "ppc64", "riscv64":
		return machine
	}
	return ""
}

// architecture is what the kernel says (since 6.1), or what cpuinfo looks like.
func (r processorReader) architecture(info cpuInfo) string {
	if text, ok := r.text(r.proc("sys/kernel/arch")); ok && goArchitecture(text) != "" {
		return goArchitecture(text)
	}
	switch {
	case info.first("cpu family") != "" && slices.Contains(info.words("flags"), "lm"):
		return "amd64"
	case info.first("cpu family") != "" && info.first("flags") != "":
		return "386"
	// A 32-bit processor calls its vector unit "neon".
	case info.first("CPU implementer") != "" && slices.Contains(info.words("Features"), "asimd"):
		return "arm64"
	case info.first("vendor_id") == "IBM/S390":
		return "s390x"
	case strings.HasPrefix(info.first("cpu"), "POWER"):
		return r.power(info.first("cpu"))
	case strings.HasPrefix(info.first("isa"), "rv64"):
		return "riscv64"
	}
	return ""
}

// power tells the two byte orders apart, by the kernel's word (since 6.2) or by
// the processor: Linux is little-endian from POWER8 on.
func (r processorReader) power(cpu string) string {
	order, _ := r.text(r.sys("kernel/cpu_byteorder"))
	generation, _, _ := strings.Cut(strings.TrimPrefix(cpu, "POWER"), " ")
	number, _ := strconv.Atoi(strings.TrimRight(generation, "+,ELNV"))
	if order == "big" || (order == "" && number < 8) {
		return "ppc64"
	}
	return "ppc64le"
}
