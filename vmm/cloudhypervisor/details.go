package cloudhypervisor

import (
	"os"
	"slices"

	"github.com/vmlet/vmlet/vmm"
	"golang.org/x/sys/unix"
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
	featureSocket   = "api-socket-descriptor"
	featureEvents   = "event-monitor-descriptor"
	featureLandlock = "landlock"
	featureSeccomp  = "seccomp"
	// featureRestoreMode came with v52. What counts is what came with it: over RAM that
	// is mapped privately from a file, the balloon says that it can't hand back pages
	// and goes on (virtio-devices/src/balloon.rs), where v51 ended.
	featureRestoreMode = "memory-restore-mode"
)

// DefaultFirmware returns where the program's firmware is looked for: its own
// build of edk2 under the two names that it is packaged by, then
// rust-hypervisor-firmware.
func DefaultFirmware() []string {
	return []string{
		"/usr/local/share/cloud-hypervisor/CLOUDHV.fd",
		"/usr/share/cloud-hypervisor/CLOUDHV.fd",
		"/usr/share/cloud-hypervisor/CLOUDHV_EFI.fd",
		"/usr/share/cloud-hypervisor/hypervisor-fw",
	}
}

func (p *Program) firmwareFiles() []string {
	if p.config.Firmware != nil {
		return p.config.Firmware
	}
	return DefaultFirmware()
}

// onNode adds to what the program said what is found anew each time.
func (p *Program) onNode(d Details) Details {
	d.Landlock = d.has(featureLandlock) && landlockVersion() >= landlockWanted
	d.FirmwareFiles = p.firmwareFiles()
	for _, path := range d.FirmwareFiles {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			d.Firmware = path
			break
		}
	}
	return d
}

// lazy is whether an image can be mapped.
func (d *Details) lazy() bool { return d.NoSave == "" && d.has(featureRestoreMode) }

func (d *Details) has(feature string) bool { return slices.Contains(d.Features, feature) }

// landlockWanted is the version of Landlock's interface that cloud-hypervisor
// insists on: with LANDLOCK_ACCESS_FS_TRUNCATE (linux/landlock.h, Linux 6.2).
const landlockWanted = 3

// landlockVersion asks the kernel (landlock_create_ruleset(2)); 0: it has none, or
// it is switched off.
func landlockVersion() int {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(version)
}

// detailsOf are those in what was said of the program.
func detailsOf(info vmm.Info) (*Details, bool) {
	d, ok := info.Details.(*Details)
	return d, ok && d != nil
}
