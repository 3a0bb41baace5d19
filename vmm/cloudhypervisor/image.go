package cloudhypervisor

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// ErrImage is wrapped by CheckImage's errors: the image may be whole, but it can't be
// restored with this cloud-hypervisor on this node.
var ErrImage = errors.New("the image can't be restored here")

// Manifest says what an image of the VM started with this request needs. Of the CPU it
// has what was switched on by name: the VMM itself compares all of the CPU when it
// restores, under KVM on x86-64.
func (CloudHypervisor) Manifest(req vmm.PlanRequest) (memory.Manifest, error) {
	b, err := newBuilder(req)
	if err != nil {
		return memory.Manifest{}, err
	}
	size := b.memory().Size
	if err := b.faults.Err(); err != nil {
		return memory.Manifest{}, err
	}
	specification, err := spec.MarshalJSON(req.Spec)
	if err != nil {
		return memory.Manifest{}, err
	}
	layout := memory.LayoutRaw
	if b.lazy() {
		// RAM that is mapped privately is in no file that could be copied.
		layout = memory.LayoutStream
	}
	return memory.Manifest{
		Layout:        layout,
		VMM:           memory.VMM{Name: wire.Name, Version: req.Info.Version, Extra: map[string]string{segmentsKey: strconv.Itoa(int(b.segments()))}},
		Accelerator:   req.Hypervisor,
		CPU:           memory.CPU{Model: modelHost, Features: b.switchedOn()},
		MemorySize:    size,
		Regions:       []memory.Region{{Name: RAM, Size: size}},
		Specification: specification,
	}, nil
}

// switchedOn are the CPU features that were asked for.
func (b *builder) switchedOn() []string {
	var out []string
	for _, f := range b.spec.GetCpu().GetFeatures() {
		if f.GetPolicy() != spec.PolicyDisable {
			out = append(out, f.GetName())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// CheckImage refuses what the VMM would only refuse, or worse, take, when the guest's
// memory is there. The error joins one for each obstacle, each wrapping ErrImage.
func CheckImage(info vmm.Info, m *memory.Manifest) error {
	if m.VMM.Name != wire.Name {
		return fmt.Errorf("%w: it was saved by %.80q, and this VMM is %s: only the VMM that saved it can restore it", ErrImage, m.VMM.Name, wire.Name)
	}
	details, ok := DetailsOf(info)
	if !ok {
		return fmt.Errorf("checking an image: the information on %s is of type %T, not %s's", info.Binary, info.Details, wire.Name)
	}
	return errors.Join(checkVersion(info, m), checkAccelerator(details, m), checkTrial(details))
}

// checkVersion wants the same major version: what a snapshot has of the devices' states
// is promised to no other.
func checkVersion(info vmm.Info, m *memory.Manifest) error {
	there, ok := major(m.VMM.Version)
	if !ok {
		return fmt.Errorf("%w: %.40q, by which it was saved, is not a version of cloud-hypervisor", ErrImage, m.VMM.Version)
	}
	if here, ok := major(info.Version); ok && here != there {
		return fmt.Errorf("%w: it was saved by cloud-hypervisor %.40s, and that at %s is %s: snapshots do not carry over between major versions: install version %d to restore it",
			ErrImage, m.VMM.Version, info.Binary, info.Version, there)
	}
	return nil
}

// major reads the first number of a version.
func major(version string) (uint64, bool) {
	first, _, _ := strings.Cut(version, ".")
	n, err := strconv.ParseUint(first, 10, 32)
	return n, err == nil
}

func checkAccelerator(d *Details, m *memory.Manifest) error {
	switch failure, tried := d.Accelerators[m.Accelerator]; {
	case !tried:
		return fmt.Errorf("%w: it was saved under the hypervisor %.40q, which this node doesn't have", ErrImage, m.Accelerator)
	case failure != "":
		return fmt.Errorf("%w: it was saved under the hypervisor %s, which cloud-hypervisor can't use here: %s", ErrImage, m.Accelerator, failure)
	}
	return nil
}

func checkTrial(d *Details) error {
	if d.NoSave != "" {
		return fmt.Errorf("%w: %s", ErrImage, d.NoSave)
	}
	return nil
}

// drainsFrom is the first major version that waits, when it pauses a VM, for what its
// disks have under way (cloud-hypervisor's change #8356). Before it such a request is
// neither in the snapshot nor, perhaps, on the disk.
const drainsFrom = 53

// Undrained says why VMs of this version can't be saved; empty: they can. The version is
// all that tells: no option, field or feature came with that change.
func Undrained(version string) string {
	if n, ok := major(version); ok && n >= drainsFrom {
		return ""
	}
	return fmt.Sprintf("cloud-hypervisor %.40s pauses a VM before its disks have completed their requests, which a saved VM would lose: install version %d or newer", version, drainsFrom)
}
