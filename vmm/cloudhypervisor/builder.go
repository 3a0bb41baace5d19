package cloudhypervisor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// builder collects a configuration and its files, and all faults on the way.
type builder struct {
	req     vmm.PlanRequest
	spec    *specv1.VirtualMachineSpec
	details *Details

	config chapi.VMConfig
	hosts  []chapi.Device
	add    []wire.AddNet
	folder string
	files  []plan.File
	faults spec.FieldErrors
	// attaching: the VM runs, and the VMM opens by its name what it is given.
	attaching bool
}

// file returns the number of the descriptor that the VMM will have.
func (b *builder) file(f plan.File) int {
	b.files = append(b.files, f)
	return plan.FirstFile + len(b.files) - 1
}

// own returns a path to a file that is the VMM's user's.
//
// Every file has such a path: it leads to the very one that was opened and checked,
// whatever becomes of its name, and past folders that the VMM's user may not enter.
// The VMM opens it again, when the guest is reset too, and the kernel checks its
// user's right to it again.
func (b *builder) own(f plan.File) string {
	return fmt.Sprintf("/proc/self/fd/%d", b.file(f))
}

// granted returns a path to somebody else's file that must be that very one.
func (b *builder) granted(f plan.File) string {
	f.Granted = true
	return b.own(f)
}

// copied returns a path to somebody else's file where a copy does as well.
func (b *builder) copied(f plan.File) string {
	f.Reopened, f.Named = true, true
	return b.own(f)
}

// lacks is a fault of what QEMU has. To a VM that runs that is no help.
func (b *builder) lacks(field, format string, args ...any) {
	b.faults.Add(field, format, args...)
	if !b.attaching {
		b.faults[len(b.faults)-1].UseVMM = spec.VMMQEMU
	}
}

// refuse finds what can't be had whatever the rest of the specification says.
func (b *builder) refuse() {
	d, info := b.details, b.req.Info
	for _, need := range []struct{ feature, option string }{
		{FeatureSocket, "--api-socket fd=N"}, {FeatureEvents, "--event-monitor fd=N"}, {FeatureSeccomp, "--seccomp"},
	} {
		if !d.Has(need.feature) {
			b.faults.Add("vmm", "cloud-hypervisor %s at %s has no %s: install a newer one, or use qemu", info.Version, info.Binary, need.option)
		}
	}
	switch vmm := b.spec.GetVmm(); vmm {
	case "", spec.Auto, spec.VMMCloudHypervisor:
	default:
		b.faults.Add("vmm", "%s was asked for, and the plan is for cloud-hypervisor", vmm)
	}
	if image := b.req.Image; image != nil {
		b.refuseImage()
	}
	if h := b.req.Hypervisor; !slices.Contains(Hypervisors(), h) {
		b.lacks("hypervisor", "cloud-hypervisor runs no guests under %q: want %s", h, strings.Join(Hypervisors(), " or "))
	} else if failure := d.Accelerators[h]; failure != "" {
		b.faults.Add("hypervisor", "cloud-hypervisor can't use %s here: %s", h, failure)
	}
	if machine := b.spec.GetMachineType(); machine != "" {
		b.lacks("machineType", "%q: cloud-hypervisor has one machine and no types: leave it out", machine)
	}
}

func (b *builder) refuseImage() {
	switch m := b.req.Image.Manifest; {
	case m == nil:
		b.faults.Add("vmm", "the image in %s has no manifest", contract.ObjectName(b.req.Image.Directory))
	case m.VMM.Name != wire.Name:
		b.faults.Add("vmm", "the image in %s was made by %s, which alone can restore it: restore another", contract.ObjectName(b.req.Image.Directory), m.VMM.Name)
		b.faults[len(b.faults)-1].UseVMM = m.VMM.Name
	}
}
