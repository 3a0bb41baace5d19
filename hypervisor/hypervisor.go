// Package hypervisor is the contract behind which KVM, MSHV and plain emulation look alike. Each has two halves, as VMMs have. A
// Kind is what it is on every node: its names, the devices that pods request, defaults, limits. A program that judges specifications
// away from a node links only these (hypervisor/standard lists them). A Hypervisor is a Kind on one node: its device there, and
// whether it works (hypervisor/standard/probe). That is tried (a virtual machine is made and, with KVM, a tiny guest is run),
// never taken from the presence of a device node.
//
// There is no global list: New makes a Registry of kinds, NewLocal a node's, and the caller passes them on. Check takes tens of
// milliseconds and nothing is cached here; a caller that asks often keeps the answer and asks again when the machine changes.
package hypervisor

import (
	"context"
	"fmt"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"syscall"
)

// Names by which a VM's specification asks for a hypervisor.
const (
	NameAuto      = "auto"
	NameKVM       = "kvm"
	NameMSHV      = "mshv"
	NameEmulation = "emulation"
)

// Kind is one way of running guests, as it is on every node: it opens nothing and asks the machine nothing. Implementations are
// safe for concurrent use.
type Kind interface {
	// Name is what a specification says: kvm, mshv, emulation.
	Name() string
	// Accelerator is the name that QEMU's -accel takes.
	Accelerator() string
	// VirtType is libvirt's domain type, under which administrators know it: kvm, hyperv, qemu.
	VirtType() string
	// DeviceRequests are what a VM's pod asks of Kubernetes to be given the devices that this hypervisor needs.
	DeviceRequests() []DeviceRequest
}

// Hypervisor is a Kind on one node. Implementations are safe for concurrent use.
type Hypervisor interface {
	Kind
	// Device is the device node it needs, under the root that it was made with; empty when it needs none.
	Device() string
	// DependsOn is what its answers, and those of VMMs that run under it, depend on.
	DependsOn() Dependencies
	// Check tries the hypervisor. It returns within about a second whatever the kernel does, sooner when ctx ends.
	Check(ctx context.Context) Status
}

// Dependencies are parts of a machine: when one of them is another, what was asked before is asked again.
type Dependencies struct {
	// Devices are its device nodes, its own first. The node's document has each.
	Devices []DeviceNode
	// Modules are patterns (path.Match) of the names of kernel modules whose parameters count: "kvm_*".
	Modules []string
}

// DeviceNode is a device node, and a question that its driver answers and no other one does.
type DeviceNode struct {
	// Name is the document's, Path the one below /dev.
	Name, Path string
	// Remedy for one that isn't there.
	Remedy string
	// Ioctl is the name of a request without an argument that only reads, and Request its number; empty: the device is only opened.
	Ioctl   string
	Request uintptr
}

// DeviceRequest is a Kubernetes device resource, and the device node that it stands for.
type DeviceRequest struct {
	// Resource is its name: "devices.kubevirt.io/kvm".
	Resource string
	// Path of the device node on a node, whatever root this machine is read from: "/dev/kvm".
	Path string
	// Optional: VMs run without it, only worse.
	Optional bool
}

// Discoverer is a hypervisor that can say more of itself than whether it works.
type Discoverer interface {
	// Discover fills in limits, extensions, Hyper-V features, the TSC, CPUID and MSRs, as far as the hypervisor has them. What
	// could not be asked is returned; facts are named as in capabilitiesv1.UnknownFact. It returns within seconds, sooner when ctx ends.
	Discover(ctx context.Context, into *capabilitiesv1.HypervisorCapabilities) []*capabilitiesv1.UnknownFact
}

// Level says how far a hypervisor can be used.
type Level int

// The zero Level is Unusable, so that a forgotten one promises nothing.
const (
	Unusable Level = iota // no guest runs
	Degraded              // guests run, with limits that make it a bad default; used when asked for by name, or when nothing better can be had
	Works
)

// State returns the level as the capabilities document has it.
func (l Level) State() capabilitiesv1.State {
	switch l {
	case Unusable:
		return capabilitiesv1.State_STATE_UNUSABLE
	case Degraded:
		return capabilitiesv1.State_STATE_DEGRADED
	case Works:
		return capabilitiesv1.State_STATE_WORKS
	}
	return capabilitiesv1.State_STATE_UNSPECIFIED
}

// String returns unusable, degraded or works.
func (l Level) String() string {
	if word := l.State().Word(); word != "" {
		return word
	}
	return fmt.Sprintf("level %d", int(l))
}

// Status is the outcome of trying a hypervisor.
type Status struct {
	Level Level
	// Reason says in a sentence what was found; never empty when Level is not Works.
	Reason string
	// Remedy says what an administrator can do; empty when there is nothing to be done.
	Remedy string
	// Errno is the kernel's answer where one decided the level, else 0.
	Errno syscall.Errno
	// Limits lists what guests can't have here, a sentence each.
	Limits []string
	// CPUQuirks lists what must follow a host CPU model on QEMU's -cpu option ("-arch-capabilities") for QEMU to start.
	CPUQuirks []string
	// InstructionsPerSecond is how fast the trial guest ran in its fastest round, in the mode that Linux uses (64-bit, paging on);
	// 0 if it wasn't measured.
	InstructionsPerSecond uint64
}

// Sentence is the reason and the remedy in one line, for an error message or a log.
func (s Status) Sentence() string {
	switch {
	case s.Reason == "":
		return s.Level.String()
	case s.Remedy == "":
		return s.Reason
	}
	return s.Reason + ": " + s.Remedy
}
