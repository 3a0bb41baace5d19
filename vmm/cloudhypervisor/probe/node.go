package probe

import (
	"os"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor"

	"golang.org/x/sys/unix"
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

// onNode adds to what the program said what is found again each time.
func (p *Program) onNode(d cloudhypervisor.Details) cloudhypervisor.Details {
	d.Landlock = d.Has(cloudhypervisor.FeatureLandlock) && landlockVersion() >= landlockWanted
	d.FirmwareFiles = p.firmwareFiles()
	for _, path := range d.FirmwareFiles {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			d.Firmware = path
			break
		}
	}
	return d
}

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
