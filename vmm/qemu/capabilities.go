package qemu

import (
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/vmm"
	"maps"
	"math"
	"slices"
)

// capabilities says in the node's words what the program answered.
func (q *QEMU) capabilities(a *answer) *capabilitiesv1.VmmCapabilities {
	d := &a.Details
	out := &capabilitiesv1.VmmCapabilities{
		Name: q.Name(), Version: a.Version, Binary: q.config.Binary, Package: d.Package, Architecture: d.Arch,
		State:                 capabilitiesv1.State_STATE_WORKS,
		Devices:               slices.Clone(d.Devices),
		SnapshotKinds:         d.snapshotKinds(),
		LazyRestore:           d.ReadOnlyMemory,
		MigrationCapabilities: slices.Clone(d.MigrationCapabilities),
		BuiltAccelerators:     slices.Clone(d.BuiltAccelerators),
		Features:              d.features(),
	}
	for _, m := range d.Machines {
		out.MachineTypes = append(out.MachineTypes, m.capabilities())
	}
	for _, name := range d.hypervisors(q.config.Hypervisors) {
		accelerator := d.Accelerators[name]
		out.Accelerators = append(out.Accelerators, accelerator.capabilities(name))
	}
	return out
}

// snapshotKinds are the ways in which memory comes back: filled before the
// guest runs, mapped, or read from QEMU's own stream.
func (d *Details) snapshotKinds() []string {
	kinds := []string{"eager"}
	if d.ReadOnlyMemory {
		kinds = append(kinds, "lazy")
	}
	return append(kinds, "stream")
}

// features are what not every QEMU can do.
func (d *Details) features() []string {
	var out []string
	for _, name := range d.DeviceAccelerators {
		out = append(out, name+"-device-descriptor")
	}
	if d.HostNodes {
		out = append(out, "memory-host-nodes")
	}
	if d.MemoryOffset {
		out = append(out, "memory-offset") // NUMA nodes with memory each
	}
	if d.MigrateFile {
		out = append(out, "migrate-file")
	}
	return out
}

func (m Machine) capabilities() *capabilitiesv1.MachineType {
	family := familyOf(m.Name)
	return &capabilitiesv1.MachineType{
		Name: m.Name, Alias: m.Alias, Deprecated: m.Deprecated, IsDefault: m.Default,
		MaxVcpus:       uint32(min(max(m.MaxCPUs, 0), math.MaxInt32)),
		Supported:      family != familyUnknown,
		DefaultCpuType: m.CPUType, HotpluggableCpus: m.HotplugCPUs,
		Numa: family.hasNUMA(),
	}
}

func (a Accelerator) capabilities(hypervisor string) *capabilitiesv1.AcceleratorCapabilities {
	out := &capabilitiesv1.AcceleratorCapabilities{
		Hypervisor: hypervisor, Accelerator: a.Name, Usable: a.Failure == "", Reason: a.Failure,
		CpuFeatures: featureNames(a.Available),
	}
	for _, name := range slices.Sorted(maps.Keys(a.Models)) {
		if openModel(name) || name == modelBase {
			continue
		}
		m := a.Models[name]
		out.CpuModels = append(out.CpuModels, &capabilitiesv1.CpuModel{
			Name: name, Usable: len(m.Unavailable) == 0, UnavailableFeatures: featureNames(m.Unavailable),
			Deprecated: m.Deprecated, AliasOf: m.AliasOf, Vendor: modelVendor(name, m),
		})
	}
	if h := a.HostModel; h != nil {
		out.HostCpuModel = &capabilitiesv1.HostCpuModel{
			Name: h.Name, Vendor: vmm.VendorName(h.Vendor),
			RequiredFeatures: featureNames(h.Required), DisabledFeatures: featureNames(h.Disabled),
		}
	}
	if s := a.SEV; s != nil {
		out.Sev = &capabilitiesv1.VmmSev{CbitPosition: s.CBitPosition, ReducedPhysicalBits: s.ReducedPhysBits}
	}
	return out
}
