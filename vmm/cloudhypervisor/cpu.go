package cloudhypervisor

import (
	"fmt"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// modelHost is the one CPU model: the node's CPU, with all that the hypervisor can
// pass on. The node's quirks are QEMU's and don't matter here.
const modelHost = "host"

// modelEmulated is what a VM gets under emulation unless it says otherwise: that is
// refused itself, and this is no fault besides.
const modelEmulated = "max"

// maxThreads is how many threads a core can have on x86-64.
const maxThreads = 2

func (b *builder) cpus() {
	cpu := b.spec.GetCpu()
	if model := cpu.GetModel(); model != "" && model != modelHost && !(model == modelEmulated && b.req.Hypervisor == spec.HypervisorEmulation) {
		b.lacks("cpu.model", "%q: cloud-hypervisor gives the guest the node's CPU: want host", model)
	}
	// The topology has room for all that there may be: more sockets.
	vcpus, most := uint32(spec.VCPUs(cpu)), uint32(spec.VCPULimit(cpu))
	threads, cores := part(cpu.GetThreads()), part(cpu.GetCores())
	out := &chapi.CPUs{Boot: vcpus, Max: most, Topology: &chapi.CPUTopology{
		ThreadsPerCore: threads, CoresPerDie: cores, DiesPerPackage: 1, Packages: uint16(most / (uint32(threads) * uint32(cores))),
	}}
	if b.details.Arch == spec.ArchAMD64 && cpu.GetThreads() > maxThreads {
		b.faults.Add("cpu.threads", "%d: cloud-hypervisor has at most %d threads a core", cpu.GetThreads(), maxThreads)
	}
	for i, f := range cpu.GetFeatures() {
		b.feature(fmt.Sprintf("cpu.features[%d].name", i), f, out)
	}
	b.config.CPUs = out
}

// part of a topology: validation keeps the product below spec.MaxVCPUs.
func part(n uint32) uint16 { return uint16(max(n, 1)) }

// feature turns on or off what cloud-hypervisor has a switch for. All others the
// guest has where the node has them.
func (b *builder) feature(field string, f *specv1.CPUFeature, out *chapi.CPUs) {
	on := !spec.TakesAway(f)
	switch name := f.GetName(); name {
	case "amx":
		if b.details.Arch != spec.ArchAMD64 {
			b.faults.Add(field, "amx is a feature of x86-64")
		}
		out.Features = &chapi.CPUFeatures{AMX: on}
	case "nested":
		out.Nested = &on
	case "kvm_hyperv":
		if on && b.req.Hypervisor != spec.HypervisorKVM {
			b.faults.Add(field, "kvm_hyperv can't be had with %s: want kvm", b.req.Hypervisor)
		}
		out.HyperV = on
	default:
		if f.GetPolicy() == spec.PolicyOptional {
			return
		}
		b.lacks(field, "%q: cloud-hypervisor has no switch for it, but for amx, nested and kvm_hyperv: leave it out, as the guest has what the node has", name)
	}
}
