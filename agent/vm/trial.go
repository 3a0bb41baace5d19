package vm

import (
	"context"
	"errors"
	"slices"

	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/hypervisor"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
)

// trial finds out which VMMs can run the VM of a launch. Nothing is taken for it.
type trial struct {
	launch *launch
	id     string
	// By the VMM's name: what was found on the way.
	vmms     map[string]vmm.VMM
	infos    map[string]vmm.Info
	requests map[string]vmm.PlanRequest
}

// ask says what a VMM can do.
func (t *trial) ask(ctx context.Context, name string) (*capabilitiesv1.VmmCapabilities, error) {
	v, err := t.launch.m.place.VMM(name)
	if err != nil {
		return nil, err
	}
	info, err := v.Info(ctx)
	if err != nil {
		return nil, err
	}
	t.vmms[name], t.infos[name] = v, info
	return info.Capabilities, nil
}

// accepts says what of the specification a VMM can't do under a hypervisor: all of
// it at once.
func (t *trial) accepts(ctx context.Context, name string, h hypervisor.Hypervisor) error {
	a, v := t.launch.manager, t.vmms[name]
	complete := spec.Default(t.launch.spec, a.target(t.id, h.Name(), v), a.layers)
	req := vmm.PlanRequest{
		ID:               t.id,
		Spec:             complete,
		Hypervisor:       h.Name(),
		Accelerator:      h.Accelerator(),
		CPUQuirks:        h.Check(ctx).CPUQuirks,
		Info:             t.infos[name],
		HypervisorDevice: h.Device(),
		Image:            t.launch.image,
		Paused:           t.launch.paused,
	}
	t.requests[name] = req
	// As it would be planned for. Where its memory is makes no difference.
	req.StateDir, req.MemoryPath = t.launch.m.place.StateDir(), "/"
	req.Taps, req.Seed = place.Descriptors(complete)
	_, err := v.Plan(req)
	return advised(ctx, withFaults(a.node.Hypervisors.Validate(complete, a.arch), err), t.launch.m.place.VMM)
}

// vmmFinder finds the VMM of a name where a VM is.
type vmmFinder func(name string) (vmm.VMM, error)

// advised leaves in an error's faults only advice that can be taken: to use another VMM,
// where that can be used.
func advised(ctx context.Context, err error, find vmmFinder) error {
	var faults spec.FieldErrors
	if errors.As(err, &faults) {
		faults.Advise(func(name string) bool {
			v, err := find(name)
			if err == nil {
				_, err = v.Info(ctx)
			}
			return err == nil
		})
	}
	return err
}

// withFaults is an error that says all that is wrong with a specification: its
// faults, and those in err that are none of them. An err of another kind is lost
// where there are faults, from which it may follow.
func withFaults(faults spec.FieldErrors, err error) error {
	var more spec.FieldErrors
	switch {
	case len(faults) == 0:
		return err
	case !errors.As(err, &more):
		return faults
	}
	for _, f := range more {
		if !slices.Contains(faults, f) {
			faults = append(faults, f)
		}
	}
	return faults
}

// target is what a specification is completed for.
func (a *Manager) target(id, hypervisor string, v vmm.VMM) spec.Target {
	return spec.Target{ID: id, Hypervisor: hypervisor, VMM: v.Name(), Arch: a.arch, Defaults: vmm.DefaultsOf(v, a.arch)}
}
