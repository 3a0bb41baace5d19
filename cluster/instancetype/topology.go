package instancetype

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// threadsPerCore is what a core has where processors are spread over threads.
const threadsPerCore = 2

// topology is as what a preference shows processors: one of the present names, which an old one
// stands for.
func topology(p *instancetypev1.VirtualMachinePreferenceSpec) instancetypev1.PreferredCPUTopology {
	if p == nil || p.CPU == nil || p.CPU.PreferredCPUTopology == nil {
		return instancetypev1.Sockets
	}
	switch t := *p.CPU.PreferredCPUTopology; t {
	case instancetypev1.OldSockets:
		return instancetypev1.Sockets
	case instancetypev1.OldCores:
		return instancetypev1.Cores
	case instancetypev1.OldThreads:
		return instancetypev1.Threads
	case instancetypev1.OldSpread:
		return instancetypev1.Spread
	case instancetypev1.OldAny:
		return instancetypev1.Any
	default:
		return t
	}
}

// spread is how a preference spreads processors.
func spread(p *instancetypev1.VirtualMachinePreferenceSpec) (across instancetypev1.SpreadAcross, ratio int32) {
	across, ratio = instancetypev1.SpreadAcrossSocketsCores, 2
	if p.PreferSpreadSocketToCoreRatio != 0 {
		ratio = p.PreferSpreadSocketToCoreRatio
	}
	if o := p.CPU.SpreadOptions; o != nil {
		if o.Across != nil {
			across = *o.Across
		}
		if o.Ratio != nil {
			ratio = *o.Ratio
		}
	}
	return across, ratio
}

// guestPath is where KubeVirt reports processors that can't be spread.
const guestPath = "instancetype.spec.cpu.guest"

// topologyOf shows an instancetype's processors as a preference has it.
func topologyOf(cpus int32, p *instancetypev1.VirtualMachinePreferenceSpec) (kubevirtv1.CPUTopology, *field.Error) {
	one := kubevirtv1.CPUTopology{Sockets: 1, Cores: 1, Threads: 1}
	fault := func(format string, args ...any) (kubevirtv1.CPUTopology, *field.Error) {
		return one, field.Invalid(field.NewPath(guestPath), cpus, fmt.Sprintf(format, args...))
	}
	switch {
	case cpus == 0:
		return one, nil // Go programs write what they did not set
	case cpus < 0:
		return fault("a guest needs a processor at least")
	}
	switch t := topology(p); t {
	case instancetypev1.Sockets, instancetypev1.Any:
		one.Sockets = cpus
	case instancetypev1.Cores:
		one.Cores = cpus
	case instancetypev1.Threads:
		one.Threads = cpus
	case instancetypev1.Spread:
		across, ratio := spread(p)
		switch {
		case ratio < 1:
			return fault("the preference's ratio of %d spreads nothing: it has to be 1 at least", ratio)
		case across == instancetypev1.SpreadAcrossSocketsCores && cpus%ratio == 0:
			one.Sockets, one.Cores = cpus/ratio, ratio
		case across == instancetypev1.SpreadAcrossCoresThreads && ratio != threadsPerCore:
			return fault("the preference's ratio across cores and threads is %d: it has to be %d", ratio, threadsPerCore)
		case across == instancetypev1.SpreadAcrossCoresThreads && cpus%ratio == 0:
			one.Cores, one.Threads = cpus/ratio, ratio
		case across == instancetypev1.SpreadAcrossSocketsCoresThreads && cpus%threadsPerCore == 0 && cpus/threadsPerCore%ratio == 0:
			one.Sockets, one.Cores, one.Threads = cpus/threadsPerCore/ratio, ratio, threadsPerCore
		default:
			return fault("the processors can't be spread across %s with the preference's ratio of %d: take another instancetype, or another preference", across, ratio)
		}
	default:
		return fault("the preference's preferredCPUTopology %q is unknown", t)
	}
	return one, nil
}
