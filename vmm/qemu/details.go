package qemu

import (
	"path"
	"slices"
	"strings"
)

// Details are what QEMU said of itself; vmm.Info.Details holds a *Details.
// They are plain data, and kept on disk between runs.
type Details struct {
	// Arch is Go's name for the guest's architecture: "amd64", "arm64".
	Arch string `json:"arch"`
	// Package is the distributor's version: "Debian 1:7.2+dfsg-7+deb12u14".
	Package string `json:"package,omitempty"`
	// Machines are all machine types, those too that vmlet can't use, by name.
	Machines []Machine `json:"machines"`
	// Accelerators that were tried, by the hypervisor's name: "kvm".
	Accelerators map[string]Accelerator `json:"accelerators"`
	// BuiltAccelerators are those that this QEMU was built with, of those that
	// it was asked for, by its own names. Sorted.
	BuiltAccelerators []string `json:"builtAccelerators,omitempty"`
	// MigrationCapabilities by QEMU's names, sorted.
	MigrationCapabilities []string `json:"migrationCapabilities,omitempty"`
	// Devices that vmlet uses and this QEMU has, sorted.
	Devices []string `json:"devices"`
	// DeviceAccelerators are those whose -accel has the property device, so that
	// the hypervisor's device may be opened for it; by QEMU's names, sorted.
	DeviceAccelerators []string `json:"deviceAccelerators,omitempty"`
	// ReadOnlyMemory: memory-backend-file has the property rom, so that RAM can
	// be mapped privately from a file opened read-only.
	ReadOnlyMemory bool `json:"readOnlyMemory"`
	// MemoryOffset: memory-backend-file has the property offset, so that several
	// can share one file.
	MemoryOffset bool `json:"memoryOffset,omitempty"`
	// HostNodes: it was built with libnuma, so that memory can be bound to nodes.
	HostNodes bool `json:"hostNodes,omitempty"`
	// MigrateFile: migrate takes channels that lead to a file.
	MigrateFile bool       `json:"migrateFile"`
	Firmware    []Firmware `json:"firmware,omitempty"`
}

// Machine is a machine type.
type Machine struct {
	Name       string `json:"name"`
	Alias      string `json:"alias,omitempty"`
	Deprecated bool   `json:"deprecated,omitempty"`
	MaxCPUs    int    `json:"maxCpus"`
	// Default: QEMU takes it unless another is named.
	Default bool `json:"default,omitempty"`
	// CPUType is QEMU's type of the CPUs that it has by default.
	CPUType string `json:"cpuType,omitempty"`
	// HotplugCPUs: CPUs can be added while it runs.
	HotplugCPUs bool `json:"hotplugCpus,omitempty"`
}

// Accelerator is what QEMU can do with one.
type Accelerator struct {
	// Name is QEMU's: "tcg" for the hypervisor "emulation".
	Name string `json:"name,omitempty"`
	// Failure is why it can't be used here; empty: it can.
	Failure string `json:"failure,omitempty"`
	// Models by name.
	Models map[string]Model `json:"models,omitempty"`
	// Features that a guest gets with the models "host" and "max".
	HostFeatures []string `json:"hostFeatures,omitempty"`
	MaxFeatures  []string `json:"maxFeatures,omitempty"`
	// Available are all features that a guest may be given, those too that
	// stand in the way of migration; Known all that there are.
	Available []string `json:"available,omitempty"`
	Known     []string `json:"known,omitempty"`
	// HostModel is Available, said by the nearest named model; nil: QEMU doesn't
	// tell what its models are made of (arm64).
	HostModel *HostModel `json:"hostModel,omitempty"`
	// SEV is what a guest must know of AMD's memory encryption; nil: there is none.
	SEV *SEV `json:"sev,omitempty"`
}

// HostModel is a CPU said as a named model and what differs, by QEMU's names.
type HostModel struct {
	Name string `json:"name"`
	// Vendor as CPUID has it: "GenuineIntel".
	Vendor string `json:"vendor,omitempty"`
	// Required are to be added to the model, Disabled to be taken from it. Sorted.
	Required []string `json:"required,omitempty"`
	Disabled []string `json:"disabled,omitempty"`
}

// SEV is what query-sev-capabilities says.
type SEV struct {
	CBitPosition    uint32 `json:"cBitPosition"`
	ReducedPhysBits uint32 `json:"reducedPhysBits"`
}

// Model is a CPU model.
type Model struct {
	// Unavailable features belong to the model and can't be had here.
	Unavailable []string `json:"unavailable,omitempty"`
	Deprecated  bool     `json:"deprecated,omitempty"`
	// AliasOf is the versioned model that the name stands for: "Haswell-v1".
	AliasOf string `json:"aliasOf,omitempty"`
	// Vendor as CPUID has it: "GenuineIntel"; empty: not known.
	Vendor string `json:"vendor,omitempty"`
}

// Firmware is a UEFI build for flash, from a firmware descriptor
// (docs/interop/firmware.json of QEMU).
type Firmware struct {
	Code     string   `json:"code"`
	Vars     string   `json:"vars"`
	Machines []string `json:"machines"`
}

// Machine returns the versioned machine type for a name or an alias.
func (d *Details) Machine(name string) (Machine, bool) {
	i := slices.IndexFunc(d.Machines, func(m Machine) bool { return m.Name == name || m.Alias == name })
	if i < 0 {
		return Machine{}, false
	}
	return d.Machines[i], true
}

func (d *Details) has(device string) bool {
	_, found := slices.BinarySearch(d.Devices, device)
	return found
}

// FirmwareFor returns the first firmware that fits a versioned machine type.
func (d *Details) FirmwareFor(machine string) (Firmware, bool) {
	for _, f := range d.Firmware {
		for _, pattern := range f.Machines {
			if fits, err := path.Match(pattern, machine); err == nil && fits {
				return f, true
			}
		}
	}
	return Firmware{}, false
}

// family is what kind of machine a versioned type is.
type family int

const (
	familyUnknown family = iota
	familyQ35
	familyPC
	familyMicroVM
	familyVirt
)

// hasNUMA tells whether such a machine's memory and CPUs can be in NUMA nodes.
// QEMU doesn't say; those that can't refuse -numa (hw/core/numa.c).
func (f family) hasNUMA() bool { return f == familyQ35 || f == familyPC || f == familyVirt }

// Supported tells whether vmlet makes VMs of this machine type.
func (m Machine) Supported() bool { return familyOf(m.Name) != familyUnknown }

// HasNUMA tells whether its memory and CPUs can be in NUMA nodes.
func (m Machine) HasNUMA() bool { return familyOf(m.Name).hasNUMA() }

// familyOf knows machine types with their versions, and the aliases of the newest ones.
func familyOf(machine string) family {
	switch {
	case machine == "q35" || strings.HasPrefix(machine, "pc-q35-"):
		return familyQ35
	case machine == "pc" || strings.HasPrefix(machine, "pc-i440fx-"):
		return familyPC
	case machine == "microvm":
		return familyMicroVM
	case machine == "virt" || strings.HasPrefix(machine, "virt-"):
		return familyVirt
	}
	return familyUnknown
}
