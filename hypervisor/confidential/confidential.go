// Package confidential finds out what a machine can do to hide a guest's memory
// from its host: AMD's SEV, SEV-ES and SEV-SNP, Intel's TDX, and IBM Z's
// protected virtualisation. What isn't there says why, and what to do about it.
package confidential

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmlet/vmlet/hypervisor/device"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/proto/vmlet/capabilities/v1/fact"
	"github.com/vmlet/vmlet/sysfs"
)

// Facts by their path in the document.
const (
	factAll      = string(fact.Confidential)
	factPlatform = string(fact.ConfidentialSEVPlatform)
)

// Discover asks the facts of a machine, which are those that sysfs.Read found under the same roots, and /dev/sev. arch is Go's
// name of its architecture. It returns within seconds, sooner when ctx ends; what could not be asked is returned beside the
// answer, whose features are all set.
func Discover(ctx context.Context, roots sysfs.Roots, host *sysfs.Host, arch string) (*capabilitiesv1.ConfidentialComputing, []*capabilitiesv1.UnknownFact) {
	return discover(ctx, &asker{kernel: device.System{}, roots: roots, cpuid: device.CPUIDReader(roots), host: host}, arch)
}

func discover(ctx context.Context, a *asker, arch string) (*capabilitiesv1.ConfidentialComputing, []*capabilitiesv1.UnknownFact) {
	found, err := device.Within(ctx, func(context.Context) *asker {
		a.ask(arch)
		return a
	})
	if err != nil {
		why := device.NoAnswer(a.roots.DevPath("sev"), err).Error()
		return nothing(), []*capabilitiesv1.UnknownFact{{Fact: factAll, Reason: why}}
	}
	return found.out, found.unknown
}

func nothing() *capabilitiesv1.ConfidentialComputing {
	return &capabilitiesv1.ConfidentialComputing{
		Sev: &capabilitiesv1.ConfidentialFeature{}, SevEs: &capabilitiesv1.ConfidentialFeature{}, SevSnp: &capabilitiesv1.ConfidentialFeature{},
		Tdx: &capabilitiesv1.ConfidentialFeature{}, S390Pv: &capabilitiesv1.ConfidentialFeature{},
	}
}

// asker is one round of questions to a machine.
type asker struct {
	kernel  device.Kernel
	roots   sysfs.Roots
	cpuid   func(function, index uint32) (device.CPUIDLeaf, error)
	host    *sysfs.Host
	out     *capabilitiesv1.ConfidentialComputing
	unknown []*capabilitiesv1.UnknownFact
}

func (a *asker) ask(arch string) {
	a.out = nothing()
	switch arch {
	case "amd64":
		a.sev()
		a.out.Tdx = a.tdx()
	case "s390x":
		a.out.S390Pv = a.s390()
	}
}

func (a *asker) missing(fact, reason string) {
	a.unknown = append(a.unknown, &capabilitiesv1.UnknownFact{Fact: fact, Reason: reason})
}

func (a *asker) flag(name string) bool { return slices.Contains(a.host.Processor.Flags, name) }

// capacity is what the misc cgroup controller has of a resource; false: it doesn't tell. It leaves out a resource with nothing left.
func (a *asker) capacity(resource string) (uint64, bool) {
	return a.host.Virtualization.Misc[resource], a.host.Virtualization.Misc != nil
}

// parameter reports whether a module's switch is on; what is wrong otherwise, given the feature's name and what tells that the
// processor has it.
func (a *asker) parameter(module, name, feature, evidence string) (problem string) {
	has := fmt.Sprintf("the processor has %s (%s)", feature, evidence)
	parameters, loaded := a.host.Virtualization.Modules[module]
	if !loaded {
		return fmt.Sprintf("%s and %s isn't loaded: modprobe %s %s=1", has, module, module, name)
	}
	switch value, there := parameters[name]; {
	case !there:
		return fmt.Sprintf("%s and %s has no parameter %s: use a kernel that is built with it", has, module, name)
	case value == "Y" || value == "1":
		return ""
	default:
		return fmt.Sprintf("%s and %s's parameter %s is %.20q: boot with %s.%s=1; "+
			"if it is off even then, look in the kernel's log (dmesg) for what it misses of the firmware", has, module, name, value, module, name)
	}
}

func unsupported(reason string) *capabilitiesv1.ConfidentialFeature {
	return &capabilitiesv1.ConfidentialFeature{Reason: reason}
}

// tdx: kvm_intel switches its parameter off when it can't start the TDX module, so that one that is on tells all.
func (a *asker) tdx() *capabilitiesv1.ConfidentialFeature {
	switch {
	case a.host.Processor.Vendor != "GenuineIntel":
		return unsupported("")
	case !a.flag("tdx_host_platform"):
		if a.flag("tme") && !a.host.Virtualization.Guest {
			return unsupported("the processor encrypts memory (flag tme) and the firmware offers no TDX: " +
				"if the processor has it, enable TME-MT and TDX in firmware and boot Linux 6.16 or later")
		}
		return unsupported("")
	}
	if problem := a.parameter("kvm_intel", "tdx", "TDX", "flag tdx_host_platform"); problem != "" {
		return unsupported(problem)
	}
	if n, told := a.capacity("tdx"); told && n == 0 {
		return unsupported("kvm_intel's parameter tdx is on and there are no keys for guests (misc.capacity): " +
			"set more keys aside for TDX in firmware")
	}
	return &capabilitiesv1.ConfidentialFeature{Supported: true}
}

func (a *asker) s390() *capabilitiesv1.ConfidentialFeature {
	switch on := a.host.Virtualization.S390ProtectedHost; {
	case on == nil:
		return unsupported("") // no ultravisor: /sys/firmware/uv isn't there
	case !*on:
		return unsupported("the machine has protected virtualisation and it isn't switched on " +
			"(/sys/firmware/uv/prot_virt_host is 0): boot with prot_virt=1, on the machine itself and not in a guest")
	}
	return &capabilitiesv1.ConfidentialFeature{Supported: true}
}
