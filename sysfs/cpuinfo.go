package sysfs

import (
	"slices"
	"strconv"
	"strings"
)

// maxCPUInfo is how much of /proc/cpuinfo is read, in bytes: the first CPU's
// part has some 3000 with all its flags.
const maxCPUInfo = 16 << 10

// cpuInfo is what /proc/cpuinfo says first, by the words before the colons.
type cpuInfo map[string]string

// parseCPUInfo takes the first of each line. That is the first CPU's part, and
// what some architectures say of all CPUs in parts of their own: old arm kernels
// have the features behind the CPUs, LoongArch has the system before them.
func parseCPUInfo(text string) cpuInfo {
	info := cpuInfo{}
	for line := range strings.Lines(text) {
		key, value, found := strings.Cut(strings.TrimSpace(line), ":")
		key = strings.TrimSpace(key)
		if _, known := info[key]; found && !known {
			info[key] = strings.TrimSpace(value)
		}
	}
	return info
}

// first returns the value of the first of the keys that is there.
func (i cpuInfo) first(keys ...string) string {
	for _, key := range keys {
		if i[key] != "" {
			return i[key]
		}
	}
	return ""
}

func (i cpuInfo) words(key string) []string { return strings.Fields(i[key]) }

// processorReader reads the kind of the processor and of the kernel, and how they virtualise.
type processorReader struct{ *reader }

// identify puts together what the formats of the architectures have in common.
func (r processorReader) identify(path string, p *Processor, info cpuInfo) {
	p.Vendor = printable(info.first("vendor_id", "CPU implementer", "mvendorid"))
	// POWER's "cpu" is "POWER9 (architected), altivec supported".
	power, _, _ := strings.Cut(info.first("cpu"), ",")
	p.ModelName = info.first("model name", "Model Name")
	if p.ModelName == "" {
		p.ModelName = power
	}
	p.ModelName = printable(p.ModelName)
	p.Microcode = printable(info.first("microcode"))
	number := func(keys ...string) int { return r.cpuNumber(path, info, keys...) }
	p.Family = number("cpu family", "CPU architecture")
	p.Model = number("CPU part")
	if info.first("cpu family") != "" {
		// Elsewhere it is the machine's, in words.
		p.Model = number("model")
	}
	p.Stepping = number("stepping", "CPU revision")
	if variant := number("CPU variant"); variant > 0 && variant < 16 {
		p.Stepping |= variant << 4
	}
	if p.Vendor == "IBM/S390" {
		p.Model = r.cpuNumber(path, cpuInfo{"machine": machineType(info)}, "machine")
	}
	for _, key := range []string{"flags", "Features", "features"} {
		p.Flags = append(p.Flags, info.words(key)...)
	}
	p.Flags = slices.DeleteFunc(p.Flags, func(flag string) bool { return !isWord(flag) })
	slices.Sort(p.Flags)
	p.Flags = slices.Compact(p.Flags)
}

// cpuNumber reads a number as decimal or with "0x"; 0 if it is missing.
func (r processorReader) cpuNumber(path string, info cpuInfo, keys ...string) int {
	for _, key := range keys {
		text := info[key]
		if text == "" || text == "unknown" {
			continue
		}
		n, err := strconv.ParseUint(text, 0, 31)
		if err != nil {
			r.note(path, "%s: %.40q is not a number", key, text)
			return 0
		}
		return int(n)
	}
	return 0
}

// machineType is that of an s390x machine, which each of its processors' lines
// ends with: "version = FF,  identification = 2733E8,  machine = 2964".
func machineType(info cpuInfo) string {
	for n := range 10 {
		if _, after, found := strings.Cut(info["processor "+strconv.Itoa(n)], "machine ="); found {
			return strings.TrimSpace(after)
		}
	}
	return ""
}
