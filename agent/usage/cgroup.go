package usage

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vmlet/vmlet/sysfs"
)

// cgroups are the folders of a VM's own cgroup.
type cgroups struct {
	// cpuacct and memory1 are v1's, unified v2's; empty: there is none.
	cpuacct, memory1, unified string
}

// cgroups finds them by what the kernel says of the VMM. One that is not the VM's
// own, as where it could not be moved into that, counts others too.
func (r *Round) cgroups(s Subject) (found cgroups) {
	text, err := read(r.proc(s.PID, "cgroup"))
	if s.Cgroup == "" || err != nil {
		return found
	}
	for line := range strings.Lines(text) {
		// hierarchy:controllers:path (cgroups(7))
		_, rest, _ := strings.Cut(trim(line), ":")
		controllers, at, ok := strings.Cut(rest, ":")
		// Where the agent is in a cgroup namespace, others are seen from there.
		if !ok || at == "/" || path.Clean(at) != at || strings.Contains(at, "..") || path.Base(at) != path.Base(s.Cgroup) {
			continue
		}
		all := strings.Split(controllers, ",")
		switch {
		case controllers == "":
			found.unified = r.folder("", at)
		case slices.Contains(all, "cpuacct"):
			found.cpuacct = r.folder("cpuacct", at)
		}
		if slices.Contains(all, "memory") {
			found.memory1 = r.folder("memory", at)
		}
	}
	return found
}

// hierarchies are where cgroups are mounted.
type hierarchies struct{ v1, v2 string }

// mounted are the agent's own, and then those of the machine's first process: in a
// container with v1 the agent sees no cgroups but those below its own.
func mounted(roots sysfs.Roots) []hierarchies {
	var all []hierarchies
	for _, at := range []string{roots.SysPath("fs/cgroup"), roots.ProcPath("1/root/sys/fs/cgroup")} {
		h := hierarchies{v1: at, v2: at}
		if _, err := os.Lstat(filepath.Join(at, "cgroup.controllers")); err != nil {
			h.v2 = filepath.Join(at, "unified")
		}
		all = append(all, h)
	}
	return all
}

// folder is that of a cgroup, under a controller of v1 or, with none, in v2; empty:
// it can't be seen.
func (r *Round) folder(controller, at string) string {
	for _, h := range r.mounted {
		folder := filepath.Join(h.v2, at)
		if controller != "" {
			folder = filepath.Join(h.v1, controller, at)
		}
		if _, err := os.Lstat(folder); err == nil {
			return folder
		}
	}
	return ""
}

// cpu is the CPU time of all processes that are or were in it; nil: not known.
func (c cgroups) cpu() *CPU {
	if c.cpuacct != "" {
		total, ok := number(c.cpuacct, "cpuacct.usage")
		user, ok2 := number(c.cpuacct, "cpuacct.usage_user")
		system, ok3 := number(c.cpuacct, "cpuacct.usage_sys")
		if ok && ok2 && ok3 {
			return &CPU{Total: time.Duration(total), User: time.Duration(user), System: time.Duration(system)}
		}
	}
	if c.unified == "" {
		return nil
	}
	text, err := read(filepath.Join(c.unified, "cpu.stat"))
	if err != nil {
		return nil
	}
	total, ok := keyed(text, "usage_usec")
	user, ok2 := keyed(text, "user_usec")
	system, ok3 := keyed(text, "system_usec")
	if !ok || !ok2 || !ok3 || max(total, user, system) > 1<<53 {
		return nil
	}
	return &CPU{Total: microseconds(total), User: microseconds(user), System: microseconds(system)}
}

func microseconds(n uint64) time.Duration { return time.Duration(n) * time.Microsecond }

// memory is what it is charged with, in bytes.
func (c cgroups) memory() *uint64 {
	for _, at := range []struct{ folder, file string }{{c.memory1, "memory.usage_in_bytes"}, {c.unified, "memory.current"}} {
		if at.folder == "" {
			continue
		}
		if n, ok := number(at.folder, at.file); ok {
			return &n
		}
	}
	return nil
}

// number reads a file that has one.
func number(folder, name string) (uint64, bool) {
	text, err := read(filepath.Join(folder, name))
	if err != nil {
		return 0, false
	}
	return field(text, 0)
}
