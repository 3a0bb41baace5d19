package sysfs

import (
	"path"
	"slices"
	"strings"
)

// cpuSets finds what this process may use. The kernel answers in its status
// what its cgroup and its own mask leave it; where the root has no such file (a
// tree that was captured), the cgroup's own files are asked; and where nothing is
// known, everything that is online is allowed.
func (r cpuReader) cpuSets(h *Host) {
	cpus, cpusTold := r.allowed("Cpus_allowed_list", "cpuset.cpus.effective", "cpuset.effective_cpus")
	nodes, nodesTold := r.allowed("Mems_allowed_list", "cpuset.mems.effective", "cpuset.effective_mems")
	h.CPUSets.AllowedCPUs, h.CPUSets.AllowedNodes = IDList{}, IDList{}
	for i := range h.CPUs {
		cpu := &h.CPUs[i]
		// The kernel's mask has CPUs that might come, too: only what is here counts.
		if cpu.Allowed = cpus.Has(cpu.ID) || (!cpusTold && cpu.Online); cpu.Allowed {
			h.CPUSets.AllowedCPUs = append(h.CPUSets.AllowedCPUs, cpu.ID)
		}
	}
	for i := range h.Nodes {
		node := &h.Nodes[i]
		if node.Allowed = nodes.Has(node.ID) || (!nodesTold && node.Online); node.Allowed {
			h.CPUSets.AllowedNodes = append(h.CPUSets.AllowedNodes, node.ID)
		}
	}
}

// allowed returns a list of the process's status, or else of its cgroup's files,
// by their names in version 2 and 1.
func (r cpuReader) allowed(key, v2, v1 string) (IDList, bool) {
	status := r.proc("self/status")
	text, _ := r.text(status)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok && name == key {
			if list, ok := r.parseList(status, strings.TrimSpace(value)); ok {
				return list, true
			}
		}
	}
	for _, file := range r.cpusetFiles(v2, v1) {
		if list, ok := r.list(file); ok && len(list) > 0 {
			return list, true
		}
	}
	return IDList{}, false
}

// cpusetFiles are where the cgroup's set may be: in the process's own cgroup
// (/proc/self/cgroup), or, seen from within a container, at the top of the mount.
func (r cpuReader) cpusetFiles(v2, v1 string) []string {
	const mount = "fs/cgroup"
	var files []string
	text, _ := r.text(r.proc("self/cgroup"))
	for line := range strings.Lines(text) {
		// "0::/a/b" in version 2, "3:cpuset:/a/b" in version 1 (cgroups(7)).
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		own := path.Clean("/" + fields[2])
		switch {
		case fields[1] == "":
			files = append(files, r.sys(mount+own+"/"+v2), r.sys(mount+"/unified"+own+"/"+v2))
		case slices.Contains(strings.Split(fields[1], ","), "cpuset"):
			files = append(files, r.sys(mount+"/cpuset"+own+"/"+v1))
		}
	}
	return append(files, r.sys(mount+"/"+v2), r.sys(mount+"/unified/"+v2), r.sys(mount+"/cpuset/"+v1))
}
