package qemu

import (
	"path/filepath"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/spec"
)

func (b *builder) bootArgs() {
	// Disks without a boot order are not booted from.
	b.arg("-boot", keyValues("", "strict", "on"))
	kernel := b.spec.GetBoot().GetKernel()
	if kernel == nil {
		b.checkFirmware()
		return
	}
	// QEMU reads these by name and more than once.
	b.arg("-kernel", b.reopened("boot.kernel.path", kernel.GetPath()))
	if kernel.GetInitrd() != "" {
		b.arg("-initrd", b.reopened("boot.kernel.initrd", kernel.GetInitrd()))
	}
	if kernel.GetCmdline() != "" {
		b.arg("-append", kernel.GetCmdline())
	}
}

func (b *builder) reopened(field, path string) string {
	fd := b.file(plan.File{Kind: plan.FilePath, Field: field, Path: path, Reopened: true})
	return "/proc/self/fd/" + fd
}

func (b *builder) checkFirmware() {
	firmware := b.spec.GetBoot().GetFirmware()
	switch {
	case b.family == familyMicroVM:
		b.faults.Add("boot.kernel", "is missing: the machine type microvm boots a kernel, and no disk")
	case b.family == familyVirt && firmware == spec.FirmwareBIOS:
		b.faults.Add("boot.firmware", "%s has no BIOS: want uefi", b.machine.Name)
	}
}

// flash returns machine properties for UEFI's code and variables.
func (b *builder) flash() []string {
	if b.onMicroVM() {
		b.faults.Add("boot.firmware", "the machine type microvm has no UEFI: want bios")
		return nil
	}
	firmware, found := b.details.FirmwareFor(b.machine.Name)
	if !found {
		b.faults.Add("boot.firmware", "no UEFI firmware for %s on this node: install OVMF (on arm64 AAVMF) with its descriptors in /usr/share/qemu/firmware", b.machine.Name)
		return nil
	}
	code := b.fdset(plan.File{Kind: plan.FilePath, Field: "boot.firmware", Path: firmware.Code})
	vars := b.fdset(plan.File{
		Kind: plan.FilePath, Field: "boot.firmware", Path: filepath.Join(b.req.StateDir, VarsName),
		Template: firmware.Vars, Write: true,
	})
	b.rawNode("uefi-code", code, true)
	b.rawNode("uefi-vars", vars, false)
	return []string{"pflash0", "uefi-code", "pflash1", "uefi-vars"}
}

// rawNode is a small image of vmlet's own.
func (b *builder) rawNode(name, filename string, readOnly bool) {
	b.blockdev(options{"driver": "file", "node-name": name + "-file", "filename": filename, "read-only": readOnly})
	b.blockdev(options{"driver": "raw", "node-name": name, "file": name + "-file", "read-only": readOnly})
}

func expectation(field string, i disk.Image, backing []disk.Image) *disk.Expectation {
	return &disk.Expectation{Field: field, Image: i, Backing: backing}
}
