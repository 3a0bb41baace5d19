// Package cloudhypervisor knows what can be known of cloud-hypervisor without running it:
// defaults, limits, and how a specification becomes a command line, the files that go with
// it, and what is sent to the VMM over its API.
//
// It runs nothing and opens nothing, so that anyone who judges specifications away from a
// node can link it. Package probe asks the program on this node, monitor is the agent's
// connection to a running VM, driver is the shim's, and wire has what they share.
package cloudhypervisor

import (
	"google.golang.org/protobuf/proto"

	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// CloudHypervisor is what can be known of cloud-hypervisor without its program: its
// defaults, its limits, and how VMs are planned for what a program said of itself.
type CloudHypervisor struct{}

// Name returns "cloud-hypervisor".
func (CloudHypervisor) Name() string { return wire.Name }

var _ interface {
	vmm.Defaulter
	vmm.Validator
	vmm.Plugger
	vmm.SaveRefuser
	vmm.ProgramNamer
} = CloudHypervisor{}

// Defaults returns what a specification has with cloud-hypervisor where it says
// nothing else. Of machine types, of buses for CD-ROMs and of networks there are
// none of its own, and so no defaults.
func (CloudHypervisor) Defaults(string) spec.VMMDefaults {
	return spec.VMMDefaults{
		Layer: &specv1.VirtualMachineSpec{
			Boot:    &specv1.Boot{Firmware: spec.FirmwareUEFI},
			Devices: &specv1.Devices{GuestAgent: proto.Bool(false)},
		},
		Watchdog: spec.WatchdogVirtio,
		TPM:      spec.TPMCRB,
		Disk:     diskDefaults(),
	}
}

// Traits: it has one kind of machine, and disks on virtio alone.
func (CloudHypervisor) Traits(string) vmm.Traits {
	return vmm.Traits{Disks: []string{spec.BusVirtio}}
}

// Validate finds what no cloud-hypervisor has: what a plan would be refused for on
// a node that has all that a plan needs.
func (CloudHypervisor) Validate(s *specv1.VirtualMachineSpec, arch string) spec.FieldErrors {
	b := &builder{req: imagined(s), spec: s, details: &Details{
		Arch: arch, Features: []string{FeatureSocket, FeatureEvents, FeatureLandlock, FeatureSeccomp}, Firmware: "/firmware",
	}}
	_, _ = b.plan() // the faults are what counts
	return b.faults
}

// imagined is a request in which everything is there.
func imagined(s *specv1.VirtualMachineSpec) vmm.PlanRequest {
	r := vmm.PlanRequest{Spec: s, Hypervisor: s.GetHypervisor(), User: new(plan.User)}
	if r.Hypervisor == "" || r.Hypervisor == spec.Auto {
		r.Hypervisor = spec.HypervisorKVM
	}
	r.Taps = make([]int, len(s.GetNetworks()))
	for i := range r.Taps {
		r.Taps[i] = i
	}
	r.Seed = len(r.Taps)
	return r
}

// ProgramNames is its one.
func (CloudHypervisor) ProgramNames() []string { return []string{wire.Name} }

// Hypervisors are those that it was written for, in the order in which it takes them.
func Hypervisors() []string { return []string{spec.HypervisorKVM, spec.HypervisorMSHV} }
