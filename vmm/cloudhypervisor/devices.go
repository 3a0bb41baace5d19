package cloudhypervisor

import (
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// entropySource is the host's file that a guest's random numbers come from.
const entropySource = "/dev/urandom"

// devices are those that a specification switches on and off. Those without an id
// have one of the VMM's own: "__rng", "__balloon", "__watchdog".
func (b *builder) devices() {
	d := b.spec.GetDevices()
	b.consoles()
	if d.GetGuestAgent() {
		b.lacks("devices.guestAgent", "cloud-hypervisor has no channel for QEMU's guest agent: want false")
	}
	if d != nil && d.Entropy != nil && !d.GetEntropy() {
		b.lacks("devices.entropy", "cloud-hypervisor always gives the guest a virtio-rng: want true")
	}
	b.config.RNG = &chapi.RNG{PCI: chapi.PCI{Slot: slot(slotEntropy)}, Source: entropySource}
	if d.GetBalloon() {
		b.config.Balloon = &chapi.Balloon{PCI: chapi.PCI{Slot: slot(slotBalloon)}, FreePageReporting: true}
	}
	b.watchdog()
	b.tpm()
	if v := d.GetVsock(); v != nil {
		b.config.Vsock = &chapi.Vsock{PCI: chapi.PCI{ID: "vsock", Slot: slot(slotVsock)}, CID: v.GetCid(), Socket: b.folder + "/" + wire.VsockSocket}
	}
	// Lets the guest tell of its panic.
	b.config.PVPanic = true
}

// consoles: the serial port is the VMM's own terminal, which stays when the guest is
// reset; clients of a socket would be cut off, and a pseudo terminal of the VMM's is
// another one each time. The virtio console is off.
func (b *builder) consoles() {
	b.config.Console = &chapi.Console{Mode: chapi.ConsoleOff}
	b.config.Serial = &chapi.Console{Mode: chapi.ConsoleOff}
	if b.hasConsole() {
		b.config.Serial = &chapi.Console{Mode: chapi.ConsoleTTY}
	}
}

func (b *builder) hasConsole() bool { return b.spec.GetDevices().GetConsole() }

// watchdog: there is one of virtio, which resets.
func (b *builder) watchdog() {
	w := b.spec.GetDevices().GetWatchdog()
	if w == nil {
		return
	}
	if w.GetModel() != "" && w.GetModel() != spec.WatchdogVirtio {
		b.lacks("devices.watchdog.model", "%q: cloud-hypervisor has no other than virtio: want that", w.GetModel())
	}
	if w.GetAction() != "" && w.GetAction() != "reset" {
		b.lacks("devices.watchdog.action", "%q: cloud-hypervisor's watchdog can only reset: want that", w.GetAction())
	}
	b.config.Watchdog = true
}
