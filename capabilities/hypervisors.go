package capabilities

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/device"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/pairing"
	"google.golang.org/protobuf/proto"
)

// foundIn is what a Status says, as the document has it.
func foundIn(s hypervisor.Status) *capabilitiesv1.HypervisorCapabilities {
	return &capabilitiesv1.HypervisorCapabilities{
		State: s.Level.State(), Reason: s.Reason, Remedy: s.Remedy, Errno: device.ErrnoName(s.Errno),
		Limitations: s.Limits, CpuQuirks: s.CPUQuirks, InstructionsPerSecond: s.InstructionsPerSecond,
	}
}

// describe adds to what was found what the hypervisor is by itself. What was
// found may be shared: it isn't changed.
func describe(h hypervisor.Hypervisor, found ...*capabilitiesv1.HypervisorCapabilities) *capabilitiesv1.HypervisorCapabilities {
	out := new(capabilitiesv1.HypervisorCapabilities)
	for _, f := range found {
		proto.Merge(out, f)
	}
	out.Name, out.Device, out.Accelerator, out.VirtType = h.Name(), h.Device(), h.Accelerator(), h.VirtType()
	for _, r := range h.DeviceRequests() {
		out.DeviceRequests = append(out.DeviceRequests, &capabilitiesv1.DeviceRequest{Resource: r.Resource, Path: r.Path, Optional: r.Optional})
	}
	slices.Sort(out.HypervFeatures)
	return out
}

// statusOf is the Status that a hypervisor was found in.
func statusOf(c *capabilitiesv1.HypervisorCapabilities) hypervisor.Status {
	s := hypervisor.Status{
		Reason: c.GetReason(), Remedy: c.GetRemedy(), Errno: device.ErrnoOf(c.GetErrno()),
		Limits: c.GetLimitations(), CPUQuirks: c.GetCpuQuirks(), InstructionsPerSecond: c.GetInstructionsPerSecond(),
	}
	for _, l := range []hypervisor.Level{hypervisor.Works, hypervisor.Degraded} {
		if c.GetState() == l.State() {
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

// Unwrap is for hypervisor.As.
func (a answered) Unwrap() hypervisor.Hypervisor { return a.Hypervisor }

// chooseDefault fills in what "auto" stands for on this node, and why.
func chooseDefault(ctx context.Context, s Sources, doc *capabilitiesv1.Capabilities) {
	var all []hypervisor.Hypervisor
	for i, h := range s.Hypervisors.All() {
		all = append(all, answered{h, statusOf(doc.GetHypervisors()[i])})
	}
	known, err := hypervisor.NewLocal(all...)
	if err != nil {
		doc.DefaultHypervisorReason = err.Error() // their names are those of a Registry: they differ
		return
	}
	configured, warning := known.Default(s.DefaultHypervisor)
	doc.DefaultHypervisorWarning = warning
	chosen := defaultVMM(ctx, s, doc.GetVmms(), known, configured)
	doc.DefaultVmm = chosen.GetName()
	if s.foreign() {
		doc.DefaultHypervisorReason = "not known: the files are another machine's"
		return
	}
	h, reason, err := known.Choose(ctx, configured, func(h hypervisor.Hypervisor) error {
		return vmm.RunsUnder(chosen, h.Name())
	})
	if err != nil {
		doc.DefaultHypervisorReason = fmt.Sprintf("none: %v", err)
		return
	}
	doc.DefaultHypervisor, doc.DefaultHypervisorReason = h.Name(), reason
}

// defaultVMM is the one that a VM gets which asks for nothing in particular, as the
// agent chooses it; where none can be used the preferred one, and nil if there is
// none at all.
func defaultVMM(ctx context.Context, s Sources, vmms []*capabilitiesv1.VmmCapabilities, known *hypervisor.Local, configured string) *capabilitiesv1.VmmCapabilities {
	if len(vmms) == 0 {
		return nil
	}
	if s.foreign() {
		return vmms[0] // nothing was asked
	}
	byName := make(map[string]*capabilitiesv1.VmmCapabilities)
	for _, v := range vmms {
		byName[v.GetName()] = v
	}
	on := pairing.Node{Hypervisors: known, Hypervisor: configured}
	pair, err := pairing.Choose(ctx, func(yield func(pairing.Candidate) bool) {
		for _, v := range vmms {
			var err error
			if v.GetState() == capabilitiesv1.State_STATE_UNUSABLE {
				err = errors.New(v.GetReason())
			}
			if !yield(on.Candidate(ctx, v.GetName(), v, err)) {
				return
			}
		}
	}, "")
	if err != nil {
		return vmms[0]
	}
	return byName[pair.VMM]
}
