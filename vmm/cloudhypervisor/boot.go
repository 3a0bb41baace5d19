package cloudhypervisor

import (
	"fmt"
	"strings"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

func (b *builder) payload() {
	kernel := b.spec.GetBoot().GetKernel()
	if kernel == nil {
		b.firmware()
		b.bootOrder()
		return
	}
	p := &chapi.Payload{Kernel: b.loaded("boot.kernel.path", kernel.GetPath()), Cmdline: kernel.GetCmdline()}
	if kernel.GetInitrd() != "" {
		p.Initramfs = b.loaded("boot.kernel.initrd", kernel.GetInitrd())
	}
	b.config.Payload = p
}

// loaded is a file that is read into the guest.
func (b *builder) loaded(field, path string) string {
	return b.copied(plan.File{Kind: plan.FilePath, Field: field, Path: path})
}

func (b *builder) firmware() {
	if firmware := b.spec.GetBoot().GetFirmware(); firmware != "" && firmware != spec.FirmwareUEFI {
		b.lacks("boot.firmware", "%q: cloud-hypervisor has no BIOS: want uefi or a kernel (%s)", firmware, contract.FieldName("boot.kernel"))
		return
	}
	if b.details.Firmware == "" {
		b.faults.Add("boot.firmware", "no firmware for cloud-hypervisor on this node: install its build of edk2 as one of %s, or boot a kernel (%s)",
			strings.Join(b.details.FirmwareFiles, ", "), contract.FieldName("boot.kernel"))
		return
	}
	b.config.Payload = &chapi.Payload{Firmware: b.loaded("boot.firmware", b.details.Firmware)}
}

// bootOrder wants the order that the firmware has, which can't be changed: it
// tries the disks as they are listed.
func (b *builder) bootOrder() {
	last, unordered := uint32(0), -1
	for i, d := range b.spec.GetDisks() {
		field := fmt.Sprintf("disks[%d].bootOrder", i)
		switch order := d.GetBootOrder(); {
		case order == 0:
			if unordered < 0 {
				unordered = i
			}
			continue
		case unordered >= 0:
			b.faults.Add(field, "%d: cloud-hypervisor's firmware tries the disks as they are listed: put it before %s, which is not to be booted from",
				order, contract.FieldName(fmt.Sprintf("disks[%d]", unordered)))
		case order < last:
			b.faults.Add(field, "%d comes after %d: cloud-hypervisor's firmware tries the disks as they are listed: list them in this order", order, last)
		default:
			last = order
		}
	}
}
