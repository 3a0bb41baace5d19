package qemu

import (
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm/qemu/wire"
)

// usbPorts is how many USB 3 ports the controller gets; each has a USB 2 port of
// the same number beside it (hw/usb/hcd-xhci.h allows 15).
const usbPorts = 15

// controllers adds those that disks and inputs need.
func (b *builder) controllers() {
	if b.hasSCSI() {
		b.device("disks", b.bus.place(b.withQueues(b.bus.virtio("scsi", options{"id": "scsi"}), "num_queues"), slotSCSI(), 0))
	}
	if b.needsUSB() && !b.onMicroVM() {
		b.device("disks", b.bus.place(options{"driver": "qemu-xhci", "id": "usb", "p2": usbPorts, "p3": usbPorts}, slotUSB(), 0))
	}
	b.sataControllers()
}

// sataControllers adds those beside the chipset's, each when the ports before are taken. One
// that is alone in its slot has no mark that it shares it: images from before there could be
// several have none.
func (b *builder) sataControllers() {
	first, count := 0, (b.sataPort(len(b.spec.GetDisks()))+sataPorts-1)/sataPorts
	switch b.family {
	case familyQ35:
		first = 1
	case familyPC:
		if b.spec.GetCloudInit() != nil {
			count = max(count, 1)
		}
	default:
		return
	}
	for i := first; i < count; i++ {
		s := slotAHCI()
		s.from, s.functions = i-first, count-first > 1
		b.device("disks", b.bus.place(options{"driver": "ich9-ahci", "id": b.sataController(i)}, s, 0))
	}
}

// standardDevices are those that a specification switches on and off.
func (b *builder) standardDevices() {
	d := b.spec.GetDevices()
	if d.GetConsole() {
		b.console()
	}
	if d.GetGuestAgent() {
		b.guestAgent()
	}
	if d.GetEntropy() {
		b.object(options{"qom-type": "rng-builtin", "id": "entropy"})
		b.device("devices.entropy", b.bus.place(b.bus.virtio("rng", options{"id": "entropy-device", "rng": "entropy"}), slotEntropy(), 0))
	}
	if d.GetBalloon() {
		o := options{"id": wire.BalloonID, "free-page-reporting": true}
		b.device("devices.balloon", b.bus.place(b.bus.virtio("balloon", o), slotBalloon(), 0))
	}
	if d.GetWatchdog() != nil {
		b.watchdog()
	}
	if d.GetVsock() != nil {
		b.vsock()
	}
	if d.GetTpm() != nil {
		b.tpm()
	}
	b.panicAndGeneration()
}

// console is the machine's first serial port, with the shim at its other
// end: a 16550A on amd64, a PL011 on arm64.
func (b *builder) console() {
	fd := b.file(plan.File{Kind: plan.FileConsole})
	b.arg("-chardev", keyValues("socket", "id", "console", "fd", fd))
	b.arg("-serial", "chardev:console")
}

func (b *builder) guestAgent() {
	b.device("devices.guestAgent", b.bus.place(b.bus.virtio("serial", options{"id": "serial"}), slotSerial(), 0))
	b.listener(wire.GuestAgentChardev, wire.GuestAgent)
	b.device("devices.guestAgent", options{
		"driver": "virtserialport", "id": wire.GuestAgentPort, "bus": "serial.0", "nr": 1,
		"chardev": wire.GuestAgentChardev, "name": "org.qemu.guest_agent.0",
	})
}

func (b *builder) watchdog() {
	w := b.spec.GetDevices().GetWatchdog()
	switch {
	case b.onMicroVM():
		b.faults.Add("devices.watchdog", "the machine type microvm has none")
		return
	case w.GetModel() == spec.WatchdogITCO && b.family != familyQ35:
		b.faults.Add("devices.watchdog.model", "itco is a part of q35, and this machine is %s: want i6300esb", b.machine.Name)
		return
	case w.GetModel() == spec.WatchdogITCO:
		// It is always there; without this a strap keeps it from acting.
		b.arg("-global", "ICH9-LPC.noreboot=off")
	case w.GetModel() == spec.WatchdogVirtio:
		return // Validate has refused it
	default:
		b.device("devices.watchdog.model", b.bus.place(options{"driver": "i6300esb", "id": "watchdog"}, slotWatchdog(), 0))
	}
	b.arg("-action", keyValues("", "watchdog", w.GetAction()))
}

func (b *builder) vsock() {
	fd := b.file(plan.File{Kind: plan.FilePath, Field: "devices.vsock", Path: vhostVsock, Write: true})
	o := options{"driver": "vhost-vsock-" + b.bus.transport, "id": "vsock", "guest-cid": b.spec.GetDevices().GetVsock().GetCid(), "vhostfd": fd}
	if b.bus.root != "" {
		o["disable-legacy"] = "on"
	}
	b.device("devices.vsock", b.bus.place(o, slotVsock(), 0))
}

// vhostVsock is the kernel's half of the device (drivers/vhost/vsock.c).
const vhostVsock = "/dev/vhost-vsock"

// panicAndGeneration lets the guest tell of its panic, and tells the guest when
// it has been restored: the generation id is another in every process.
func (b *builder) panicAndGeneration() {
	if b.bus.root != "" {
		b.device("machineType", b.bus.place(options{"driver": "pvpanic-pci", "id": "panic"}, slotPanic(), 0))
	}
	if b.isPC() && !lacksACPI(b.spec.GetFeatures()) { // whose tables say where it is
		b.device("machineType", options{"driver": "vmgenid", "id": "generation", "guid": "auto"})
	}
}

// UsedDevices are all that a plan may have.
func UsedDevices(arch string) []string {
	names := []string{
		"VGA", "bochs-display", "cirrus-vga", "ramfb", "virtio-gpu-pci", "virtio-vga", "usb-kbd", "usb-tablet",
		"i6300esb", "ich9-ahci", "ide-cd", "ide-hd", "pcie-root-port", "pvpanic-pci", "qemu-xhci",
		"scsi-cd", "scsi-hd", "usb-bot", "vfio-pci", "virtserialport", "vmgenid",
		spec.NetE1000, spec.NetE1000E, spec.NetIGB, spec.NetNE2K, spec.NetPCNet, spec.NetRTL8139,
	}
	for _, model := range []string{spec.TPMCRB, spec.TPMTIS} {
		if driver := tpmDriver(model, arch); driver != "" {
			names = append(names, driver)
		}
	}
	for _, transport := range []string{"pci", "device"} {
		for _, kind := range []string{"balloon", "blk", "keyboard", "net", "rng", "scsi", "serial", "tablet"} {
			names = append(names, "virtio-"+kind+"-"+transport)
		}
		names = append(names, "vhost-vsock-"+transport)
	}
	return names
}
