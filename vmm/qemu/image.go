package qemu

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/wire"
)

// unavailableKey is the entry of the manifest's VMM.Extra that lists the features
// of a named CPU model that the guest went without, separated by commas. (The
// manifest's CPU.Features say what "host" and "max" were and what was asked for
// by name; what a named model has follows from its name.)
const unavailableKey = "cpu-unavailable-features"

// ErrImage is wrapped by CheckImage's errors: the image may be whole, but it can't
// be restored with this QEMU on this node.
var ErrImage = errors.New("the image can't be restored here")

// Manifest says what an image of the VM started with this request needs.
func (QEMU) Manifest(req vmm.PlanRequest) (memory.Manifest, error) {
	b, err := newBuilder(req)
	if err != nil {
		return memory.Manifest{}, err
	}
	size, err := b.memoryPlan()
	if err != nil {
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
	m := memory.Manifest{
		Layout:        layout,
		VMM:           memory.VMM{Name: wire.Name, Version: req.Info.Version},
		Accelerator:   req.Hypervisor,
		MachineType:   b.machine.Name,
		CPU:           memory.CPU{Model: req.Spec.GetCpu().GetModel(), Features: b.guestFeatures()},
		MemorySize:    size.Size,
		Regions:       b.regions(size.Size),
		Specification: specification,
	}
	m.VMM.Extra = make(map[string]string)
	if unavailable := b.unavailable(); len(unavailable) > 0 {
		m.VMM.Extra[unavailableKey] = strings.Join(unavailable, ",")
	}
	b.madeWith(m.VMM.Extra)
	return m, nil
}

// unavailable are the features that the guest's named model has and the guest
// goes without: what this node lacks, and what it lacked where it was saved
// before, as a guest's CPU does not change under it.
func (b *builder) unavailable() []string {
	model := b.spec.GetCpu().GetModel()
	if OpenModel(model) {
		return nil
	}
	out := slices.Concat(b.accel.Models[model].Unavailable, b.savedWithout())
	slices.Sort(out)
	return slices.Compact(out)
}

// CheckImage refuses what a QEMU would only refuse, or worse, take, when the guest's
// memory is there. The error joins one for each obstacle, each wrapping ErrImage.
func CheckImage(info vmm.Info, m *memory.Manifest) error {
	if m.VMM.Name != wire.Name {
		return fmt.Errorf("%w: it was saved by %.80q, and this VMM is qemu", ErrImage, m.VMM.Name)
	}
	details, ok := info.Details.(*Details)
	if !ok {
		return fmt.Errorf("checking an image: the information on %s is of type %T, not QEMU's", info.Binary, info.Details)
	}
	c := imageCheck{info: info, details: details, image: m}
	c.version()
	c.machine()
	if c.accelerator() {
		c.cpu()
	}
	return errors.Join(c.faults...)
}

type imageCheck struct {
	info    vmm.Info
	details *Details
	image   *memory.Manifest
	accel   Accelerator
	faults  []error
}

func (c *imageCheck) add(format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf("%w: "+format, append([]any{ErrImage}, args...)...))
}

// version wants a QEMU at least as new: device state is loaded forwards only.
func (c *imageCheck) version() {
	here, okHere := parseVersion(c.info.Version)
	there, okThere := parseVersion(c.image.VMM.Version)
	switch {
	case !okThere:
		c.add("%.40q, by which it was saved, is not a version of QEMU", c.image.VMM.Version)
	case okHere && slices.Compare(there[:], here[:]) > 0:
		c.add("it was saved by QEMU %s, and QEMU at %s is %s: want %s or later", c.image.VMM.Version, c.info.Binary, c.info.Version, c.image.VMM.Version)
	}
}

// parseVersion reads major and minor. Device state does not change in a stable
// branch.
func parseVersion(s string) (version [2]int, ok bool) {
	parts := strings.SplitN(s, ".", 3)
	if len(parts) < 2 {
		return version, false
	}
	for i := range version {
		number, err := strconv.ParseUint(parts[i], 10, 16)
		if err != nil {
			return version, false
		}
		version[i] = int(number)
	}
	return version, true
}

func (c *imageCheck) machine() {
	// By name only: an alias means another machine in another QEMU.
	if !slices.ContainsFunc(c.details.Machines, func(m Machine) bool { return m.Name == c.image.MachineType && familyOf(m.Name) != familyUnknown }) {
		c.add("its machine type %.80q is not one of QEMU %s at %s", c.image.MachineType, c.info.Version, c.info.Binary)
	}
}

func (c *imageCheck) accelerator() bool {
	accel, tried := c.details.Accelerators[c.image.Accelerator]
	switch {
	case !tried:
		c.add("it was saved under the hypervisor %.40q, and this node has %s", c.image.Accelerator,
			strings.Join(slices.Sorted(maps.Keys(c.details.Accelerators)), ", "))
	case accel.Failure != "":
		c.add("it was saved under the hypervisor %s, which QEMU can't use here: %s", c.image.Accelerator, accel.Failure)
	default:
		c.accel = accel
		return true
	}
	return false
}

func (c *imageCheck) cpu() {
	name := c.image.CPU.Model
	model, known := c.accel.Models[name]
	if !known {
		c.add("its CPU model %.80q is not one of QEMU %s", name, c.info.Version)
		return
	}
	var missing []string
	if len(c.accel.Known) > 0 {
		missing = without(c.image.CPU.Features, c.accel.Available)
	}
	if !OpenModel(name) {
		had := strings.Split(c.image.VMM.Extra[unavailableKey], ",")
		missing = append(missing, without(model.Unavailable, had)...)
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		c.add("its CPU %s has features that this node doesn't have under %s: %s", name, c.image.Accelerator, abridged(slices.Compact(missing)))
	}
}

// without returns those of a that are not in b, in a slice of its own.
func without(a, b []string) []string {
	there := make(map[string]bool, len(b))
	for _, s := range b {
		there[s] = true
	}
	var out []string
	for _, s := range a {
		if !there[s] {
			out = append(out, s)
		}
	}
	return out
}

// abridged joins at most twenty names: a manifest may hold any number.
func abridged(names []string) string {
	const most = 20
	shown := make([]string, 0, most)
	for _, name := range names[:min(len(names), most)] {
		shown = append(shown, fmt.Sprintf("%.40s", name))
	}
	text := strings.Join(shown, ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
