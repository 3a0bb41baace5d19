// Package probe tries the KVM of this node and asks what it can do, through /dev/kvm by ioctl.
package probe

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/device"
	"github.com/vmlet/vmlet/hypervisor/kvm"
	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
)

// trialLimit bounds the trial guest. It takes a millisecond where KVM is healthy and 50 ms where a guest runs a million
// instructions a second, both many times that on a machine with ten times as much to do as it can. What doesn't end by then never
// will. It is within the limit of package device, so that the trial can say so itself.
const trialLimit = 4 * time.Second

// KVM is the KVM of the node whose files are below Roots.
type KVM struct {
	kvm.KVM
	Roots sysfs.Roots
}

var _ hypervisor.Hypervisor = KVM{}

// Device returns the path of /dev/kvm under the root.
func (k KVM) Device() string { return k.Roots.DevPath("kvm") }

// Check makes a virtual machine and, on x86, runs a tiny guest in it, first in 32-bit protected mode and then, through the steps
// that a Linux kernel takes, in 64-bit mode with paging, and measures how fast it ran. A KVM without hardware under it (nested,
// paravirtual) may do everything that is asked of it and yet emulate each instruction, which makes it slower than emulation in the
// VMM: that is Degraded.
func (k KVM) Check(ctx context.Context) hypervisor.Status {
	return device.Bounded(ctx, k.Device(), k.try)
}

func (k KVM) try(ctx context.Context) hypervisor.Status {
	fd, fail := device.Open(k.Device(), k.absentRemedy)
	if fail != nil {
		return fail.Status()
	}
	defer unix.Close(fd)
	version, err := device.IoctlInt(fd, kvmGetAPIVersion, 0)
	if err != nil {
		return device.Failed(k.Device()+": KVM_GET_API_VERSION", device.Errno(err), "the device is not KVM's: look what made it").Status()
	}
	if version != kvmAPIVersion {
		return hypervisor.Status{Level: hypervisor.Unusable, Reason: fmt.Sprintf("%s speaks KVM API version %d and only %d is known", k.Device(), version, kvmAPIVersion)}
	}
	vm, err := device.IoctlInt(fd, kvmCreateVM, 0)
	if err != nil {
		return device.Failed(k.Device()+": KVM_CREATE_VM", device.Errno(err), createRemedy(device.Errno(err))).Status()
	}
	defer unix.Close(vm)
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	return tryGuest(ctx, fd, vm)
}

func createRemedy(errno syscall.Errno) string {
	switch errno {
	case unix.EBUSY:
		return "another hypervisor (VirtualBox, VMware) holds the processor's virtualisation: stop it"
	case unix.EOPNOTSUPP:
		return "virtualisation is switched off: enable VT-x or AMD-V in firmware"
	case unix.ENOMEM:
		return "the kernel has no memory for another virtual machine"
	}
	return ""
}

// absentRemedy says how to get a /dev/kvm, as far as the processor's flags tell.
func (k KVM) absentRemedy() string {
	flags, err := cpuFlags(k.Roots.ProcPath("cpuinfo"))
	switch {
	case err != nil, len(flags) == 0: // only x86 has flags; there are other modules and words elsewhere
		return "load the kvm module; if that fails, enable virtualisation in firmware"
	case slices.Contains(flags, "vmx"):
		return "load kvm_intel (modprobe kvm_intel); if that fails, enable VT-x in firmware; in a container, pass the device in"
	case slices.Contains(flags, "svm"):
		return "load kvm_amd (modprobe kvm_amd); if that fails, enable AMD-V (SVM) in firmware; in a container, pass the device in"
	case slices.Contains(flags, "hypervisor"):
		return "this machine is itself a guest without virtualisation: switch on nested virtualisation in the outer hypervisor, then load kvm_intel or kvm_amd"
	}
	return "load kvm_intel or kvm_amd; if that fails, enable VT-x or AMD-V in firmware"
}

// cpuFlags reads the flags of the first processor.
func cpuFlags(path string) ([]string, error) {
	// O_NONBLOCK: a FIFO put in the file's place must not hold us up.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if strings.TrimSpace(name) == "flags" {
			return strings.Fields(value), nil
		}
	}
	return nil, lines.Err()
}

// DependsOn is /dev/kvm, and what memory encryption with it needs.
func (KVM) DependsOn() hypervisor.Dependencies {
	return hypervisor.Dependencies{
		Devices: []hypervisor.DeviceNode{
			{Name: "kvm", Path: "kvm", Remedy: "load kvm_intel or kvm_amd, or enable virtualisation in firmware; in a container, pass the device in",
				Ioctl: "KVM_GET_API_VERSION", Request: device.Request(device.None, 0xAE, 0x00, 0)},
			{Name: "sev", Path: "sev", Remedy: "only an AMD processor with SEV enabled in firmware has it: load ccp (modprobe ccp); in a container, pass the device in"},
		},
		Modules: []string{"kvm", "kvm_*", "ccp"},
	}
}
