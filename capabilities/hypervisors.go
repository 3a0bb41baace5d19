package capabilities

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmlet/vmlet/hypervisor"
	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"google.golang.org/protobuf/proto"
)

// trial is what came of trying a hypervisor, and whether it will be the same
// the next time: the kernel's "not now" (no memory, busy, too many files) and a
// trial that was broken off say nothing of the machine.
type trial struct {
	found   *vmletv1.HypervisorCapabilities
	lasting bool
}

// try checks a hypervisor.
func try(ctx context.Context, h hypervisor.Hypervisor) trial {
	s := h.Check(ctx)
	return trial{
		found: &vmletv1.HypervisorCapabilities{
			State: s.Level.String(), Reason: s.Reason, Remedy: s.Remedy, Errno: errnoName(s.Errno),
			Limitations: s.Limits, CpuQuirks: s.CPUQuirks, InstructionsPerSecond: s.InstructionsPerSecond,
		},
		lasting: ctx.Err() == nil && lasting(s),
	}
}

// describe adds to what was found what the hypervisor is by itself. What was
// found may be shared: it isn't changed.
func describe(h hypervisor.Hypervisor, found ...*vmletv1.HypervisorCapabilities) *vmletv1.HypervisorCapabilities {
	out := new(vmletv1.HypervisorCapabilities)
	for _, f := range found {
		proto.Merge(out, f)
	}
	out.Name, out.Device, out.Accelerator, out.VirtType = h.Name(), h.Device(), h.Accelerator(), h.VirtType()
	for _, r := range h.DeviceRequests() {
		out.DeviceRequests = append(out.DeviceRequests, &vmletv1.DeviceRequest{Resource: r.Resource, Path: r.Path, Optional: r.Optional})
	}
	slices.Sort(out.HypervFeatures)
	return out
}

// statusOf is the Status that a hypervisor was found in.
func statusOf(c *vmletv1.HypervisorCapabilities) hypervisor.Status {
	s := hypervisor.Status{
		Reason: c.GetReason(), Remedy: c.GetRemedy(), Errno: errnoOf(c.GetErrno()),
		Limits: c.GetLimitations(), CPUQuirks: c.GetCpuQuirks(), InstructionsPerSecond: c.GetInstructionsPerSecond(),
	}
	for _, l := range []hypervisor.Level{hypervisor.Works, hypervisor.Degraded} {
		if c.GetState() == l.String() {
			s.Level = l
		}
	}
	return s
}

// answered is a hypervisor whose Check is answered already.
type answered struct {
	hypervisor.Hypervisor
	status hypervisor.Status
}

func (a answered) Check(context.Context) hypervisor.Status { return a.status }

// chooseDefault says what "auto" stands for on this node, and why.
func chooseDefault(ctx context.Context, s Sources, found []*vmletv1.HypervisorCapabilities) (name, reason string) {
	var all []hypervisor.Hypervisor
	for i, h := range s.Hypervisors.All() {
		all = append(all, answered{h, statusOf(found[i])})
	}
	known, err := hypervisor.New(all...)
	if err != nil {
		return "", err.Error() // their names are those of a Registry: they differ
	}
	h, reason, err := known.Choose(ctx, s.DefaultHypervisor)
	if err != nil {
		return "", fmt.Sprintf("none: %v", err)
	}
	return h.Name(), reason
}
