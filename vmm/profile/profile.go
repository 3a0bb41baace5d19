// Package profile is the VirtualizationProfile: what the parts of a
// virtualisation stack are called, so that nothing has the names of one stack
// built in. Its keys are those of KubeVirt's proposal for pluggable
// virtualisation stacks. What a profile leaves out is what vmlet does by itself.
package profile

import (
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
)

// Profile is a stack by its names. The zero Profile says nothing.
type Profile struct {
	// Name of the profile, for people.
	Name       string     `yaml:"name"`
	Components Components `yaml:"virtualizationComponents"`
	Launcher   Launcher   `yaml:"virtLauncher"`
}

// Components are the hypervisor and the VMM.
type Components struct {
	// HypervisorDevice chooses the hypervisor that has this device:
	// "/dev/kvm", "/dev/mshv".
	HypervisorDevice string `yaml:"hypervisorDevice"`
	// VCPURegex matches the names of vCPU threads (hypervisor.ThreadNames) beside the
	// hypervisor's own; its first group is the vCPU's number. A newline at the end, as
	// /proc/PID/task/TID/comm has, may be in it.
	VCPURegex string `yaml:"vCpuRegex"`
	// VMMDaemonProcess is the name of a daemon between agent and VMM. vmlet has none.
	VMMDaemonProcess string `yaml:"vmmDaemonProcess"`
	// VMMProcessExecutable is the name of the VMM's program, or how it begins:
	// "qemu-system-x86", "cloud-hypervisor". It chooses the VMM.
	VMMProcessExecutable string `yaml:"vmmProcessExecutable"`
	// PITPIDPrefix is how the names of the threads begin that the hypervisor
	// makes for interval timers: "kvm-pit". vmlet has no use for it.
	PITPIDPrefix *string `yaml:"pitPidPrefix"`
}

// Launcher is the container that a VM runs in, where it runs in a pod.
type Launcher struct {
	Image string `yaml:"virtLauncherImage"`
	// Capabilities to be added to the container: "NET_BIND_SERVICE".
	Capabilities []string `yaml:"virtLauncherCapabilities"`
	// Overhead is what a VM costs beside its memory, a Kubernetes quantity; it
	// stands in for vmlet's own reckoning.
	Overhead string `yaml:"virtLauncherOverhead"`
}

var (
	capability = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)
	executable = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_.+]*$`)
)

// Validate reports every fault; keys are below "virtualizationProfile".
func (p Profile) Validate(known *hypervisor.Registry, vmms *vmm.Registry, fault func(key, format string, args ...any)) {
	key := func(k string) string { return "virtualizationProfile." + k }
	c := p.Components
	if _, ok := p.Hypervisor(known); c.HypervisorDevice != "" && !ok {
		fault(key("virtualizationComponents.hypervisorDevice"), "%q is the device of no hypervisor that is known: there are %s",
			c.HypervisorDevice, strings.Join(devices(known), ", "))
	}
	if r, err := regexp.Compile(c.VCPURegex); err != nil {
		fault(key("virtualizationComponents.vCpuRegex"), "%v", err)
	} else if c.VCPURegex != "" && r.NumSubexp() < 1 {
		fault(key("virtualizationComponents.vCpuRegex"), `%q has no group for the vCPU's number: want ^CPU (\d+)/KVM$`, c.VCPURegex)
	}
	if _, ok := p.VMM(vmms); c.VMMProcessExecutable != "" && !ok {
		fault(key("virtualizationComponents.vmmProcessExecutable"), "%q is the program of no VMM that is known: want %s", c.VMMProcessExecutable, strings.Join(programs(vmms), ", "))
	}
	if c.VMMDaemonProcess != "" && !executable.MatchString(c.VMMDaemonProcess) {
		fault(key("virtualizationComponents.vmmDaemonProcess"), "%q is not the name of a program", c.VMMDaemonProcess)
	}
	for _, name := range p.Launcher.Capabilities {
		// Kubernetes refuses CAP_SYS_ADMIN in a container that must not get more rights, as a VM's.
		if !capability.MatchString(name) || strings.HasPrefix(name, "CAP_") {
			fault(key("virtLauncher.virtLauncherCapabilities"), "%q: want names as capabilities(7) has them, without CAP_: NET_BIND_SERVICE", name)
		}
	}
	if o := p.Launcher.Overhead; o != "" {
		if _, err := spec.ParseQuantity(o); err != nil {
			fault(key("virtLauncher.virtLauncherOverhead"), "%v", err)
		}
	}
}

// Note is what a profile says that has no effect here: the key in the configuration, and why.
type Note struct{ Key, Text string }

// Notes are all of these.
func (p Profile) Notes() (notes []Note) {
	const components = "virtualizationProfile.virtualizationComponents."
	if d := p.Components.VMMDaemonProcess; d != "" {
		notes = append(notes, Note{components + "vmmDaemonProcess", d + " is not used: no daemon stands between vmlet and the VMM"})
	}
	if pit := p.Components.PITPIDPrefix; pit != nil && *pit != "" {
		notes = append(notes, Note{components + "pitPidPrefix", *pit + " is not used: vmlet neither measures nor moves the kernel's timer threads"})
	}
	return notes
}

// Hypervisor returns the name of the hypervisor that the profile chooses; false
// if it chooses none.
func (p Profile) Hypervisor(known *hypervisor.Registry) (string, bool) {
	for _, h := range known.All() {
		for _, d := range own(h) {
			if filepath.Base(d) == filepath.Base(p.Components.HypervisorDevice) {
				return h.Name(), true
			}
		}
	}
	return "", false
}

// devices are those without which some hypervisor runs no VM.
func devices(known *hypervisor.Registry) (paths []string) {
	for _, h := range known.All() {
		paths = append(paths, own(h)...)
	}
	return paths
}

// own are the devices without which a hypervisor runs no VM.
func own(k hypervisor.Kind) (paths []string) {
	for _, d := range k.DeviceRequests() {
		if !d.Optional {
			paths = append(paths, d.Path)
		}
	}
	return paths
}

// VMM returns the name of the VMM that the profile chooses; false if it chooses none.
func (p Profile) VMM(known *vmm.Registry) (string, bool) {
	name := filepath.Base(p.Components.VMMProcessExecutable)
	for _, v := range known.All() {
		namer, names := v.(vmm.ProgramNamer)
		if names && slices.ContainsFunc(namer.ProgramNames(), func(pattern string) bool { return isProgram(name, pattern) }) {
			return v.Name(), true
		}
	}
	return "", false
}

// isProgram is whether a pattern fits a program's name, or is it cut short as the kernel
// does.
func isProgram(name, pattern string) bool {
	fits, err := path.Match(pattern, name)
	return err == nil && fits || name == commOf(pattern)
}

func programs(known *vmm.Registry) (names []string) {
	for _, v := range known.All() {
		if namer, ok := v.(vmm.ProgramNamer); ok {
			names = append(names, namer.ProgramNames()...)
		}
	}
	return names
}

// commOf is how the kernel names a process of this program: TASK_COMM_LEN
// (linux/sched.h) less its NUL.
func commOf(name string) string { return name[:min(len(name), 15)] }

// Overhead is what a VM costs beside its memory, in bytes; false: the profile
// doesn't say. The profile must be valid.
func (p Profile) Overhead() (uint64, bool) {
	bytes, err := spec.ParseQuantity(p.Launcher.Overhead)
	return bytes, err == nil && p.Launcher.Overhead != ""
}
