package launcher

import (
	"math"

	"github.com/vmlet/vmlet/cluster/convert"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/vmm/overhead"
)

// overheads is what a VM costs beside its memory, in bytes: in ordinary use and at most. They
// differ under emulation alone.
type overheads struct{ request, limit int64 }

// Overhead is what an instance's pod is given beside the guest's memory, in bytes.
func Overhead(in convert.Input) (int64, error) {
	s, _, err := convert.Specification(in)
	if err != nil {
		return 0, err
	}
	o, err := overheadOf(in, s)
	return o.request, err
}

// overheadOf is what the virtualisation stack says, or the most of all VMMs and hypervisors that the VM
// may get.
func overheadOf(in convert.Input, s *specv1.VirtualMachineSpec) (most overheads, err error) {
	probes := probesMemory(&in.Instance.Spec)
	if own := in.Configuration.Stack.Overhead; own != nil {
		bytes := own.Value() + probes
		return overheads{request: bytes, limit: bytes}, nil
	}
	arch := convert.Architecture(in)
	stacks := convert.Stacks(s, in.Configuration, arch)
	for _, stack := range stacks {
		if len(stack.Faults) > 0 && len(stacks) > 1 {
			continue // nodes will not choose it
		}
		b, err := overhead.Of(overhead.Request{
			Spec: stack.Spec, Hypervisor: stack.Hypervisor, VMM: stack.VMM, Arch: arch, Ratio: in.Configuration.OverheadRatio,
		})
		if err != nil {
			return overheads{}, err
		}
		most.request = max(most.request, int64(min(b.Total, math.MaxInt64)))
		most.limit = max(most.limit, int64(min(b.Limit, math.MaxInt64)))
	}
	most.request, most.limit = most.request+probes, most.limit+probes
	return most, nil
}
