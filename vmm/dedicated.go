package vmm

import (
	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// Dedicated is how the shim divides CPUs; nil: it does not.
func Dedicated(cpu *specv1.CPU) *plan.Dedicated {
	d := cpu.GetDedicated()
	if d == nil {
		return nil
	}
	return &plan.Dedicated{VCPUs: int(spec.VCPUs(cpu)), IsolateEmulatorThread: d.GetIsolateEmulatorThread()}
}
