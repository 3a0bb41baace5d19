package cloudhypervisor

import (
	"slices"

	"github.com/vmlet/vmlet/vmm"
)

// Details are what a planner needs to know of the program and the node;
// vmm.Info.Details holds a *Details. They are plain data.
type Details struct {
	// Arch is Go's name for the guest's architecture: "amd64", "arm64".
	Arch string `json:"arch"`
	// Features are those of the capabilities document, sorted: "landlock".
	Features []string `json:"features,omitempty"`
	// Devices are the options that stand for devices, sorted: "balloon".
	Devices []string `json:"devices,omitempty"`
	// Accelerators has, by hypervisor, why the program can't be used with it; empty: it
	// can.
	Accelerators map[string]string `json:"accelerators,omitempty"`
	// NoSave is why VMs can't be saved; empty: they can, as far as it was tried.
	NoSave string `json:"noSave,omitempty"`
	// Built are the accelerators that the program was built with.
	Built []string `json:"built,omitempty"`
	// Landlock: the program has it, and so has the kernel.
	Landlock bool `json:"landlock,omitempty"`
	// Firmware is the file that boots a VM from its disks; empty: there is none.
	Firmware string `json:"firmware,omitempty"`
	// FirmwareFiles is where it was looked for.
	FirmwareFiles []string `json:"firmwareFiles,omitempty"`
}

// Features of the program that planning depends on, by vmlet's words.
const (
	FeatureSocket   = "api-socket-descriptor"
	FeatureEvents   = "event-monitor-descriptor"
	FeatureLandlock = "landlock"
	FeatureSeccomp  = "seccomp"
	// FeatureRestoreMode came with v52. What counts is what came with it: over RAM that
	// is mapped privately from a file, the balloon says that it can't hand back pages
	// and goes on (virtio-devices/src/balloon.rs), where v51 ended.
	FeatureRestoreMode = "memory-restore-mode"
)

// Lazy is whether an image can be mapped.
func (d *Details) Lazy() bool { return d.NoSave == "" && d.Has(FeatureRestoreMode) }

// Has is whether the program has a feature.
func (d *Details) Has(feature string) bool { return slices.Contains(d.Features, feature) }

// DetailsOf are those in what was said of the program.
func DetailsOf(info vmm.Info) (*Details, bool) {
	d, ok := info.Details.(*Details)
	return d, ok && d != nil
}
