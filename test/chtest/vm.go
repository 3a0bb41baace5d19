package chtest

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vmlet/vmlet/test/guest"
)

// A VM's states, as vm.info has them. One that is shut down is gone, and only its
// configuration is left: Created again.
const (
	created = "Created"
	running = "Running"
	paused  = "Paused"
)

// vm is one that is booted, or half.
type vm struct {
	vmm     *VMM
	state   string
	ram     *ram
	machine *machine
	bus     *pciBus
	vsock   bool

	endVCPUs func() // nil: it was not booted or restored

	vcpus uint32
	fewer uint32 // how many are to be left, of which the guest has not let go yet; or 0
}

// newVM makes all that a VM consists of. With a snapshot its memory is filled.
func (m *VMM) newVM(restore *restoring) (*vm, error) {
	c, err := m.config, error(nil)
	v := &vm{vmm: m, state: created, bus: newBus(), vcpus: c.Cpus.Boot}
	if v.ram, err = mapRAM(&c.Memory, &m.fence); err != nil {
		return nil, causedBy(err, "memory")
	}
	v.machine = &machine{ram: v.ram, console: m.serial, knobs: m.knobs, button: make(chan struct{}, 1)}
	v.machine.leave = func(reset bool) { m.guestLeft(v.machine, reset) }
	if err := v.fill(restore); err != nil {
		v.end()
		return nil, err
	}
	if err := v.attach(c); err != nil {
		v.end()
		return nil, err
	}
	v.machine.disk = v.witnessDisk()
	return v, nil
}

// attach checks the configuration, and makes the devices.
func (v *vm) attach(c *config) error {
	if err := c.validate(); err != nil {
		return causedBy(err, "the configuration is not valid")
	}
	zones := map[string]bool{}
	for _, z := range c.Memory.Zones {
		zones[z.ID] = true
	}
	for _, n := range c.Numa {
		for _, zone := range n.MemoryZones {
			if !zones[zone] {
				return fmt.Errorf("NUMA node %d: there is no memory zone %q", n.ID, zone)
			}
		}
	}
	if c.Tpm != nil {
		if err := v.reach(c.Tpm.Socket); err != nil {
			return causedBy(err, "TPM")
		}
	}
	if err := v.addOwn(c); err != nil {
		return err
	}
	for _, d := range c.devices() {
		if _, err := v.add(d); err != nil {
			// As with the real one: the list is in its hands, and is not put back.
			c.forget(d)
			return causedBy(err, "device %q", d.pci().ID)
		}
	}
	return nil
}

func (v *vm) lockDisks() error {
	for _, d := range v.bus.devices {
		if err := d.disk.lock(); err != nil {
			return err
		}
	}
	return nil
}

// start boots it: whoever fails here leaves a VM that was made and not booted.
func (v *vm) start() error {
	if err := v.lockDisks(); err != nil {
		return causedBy(err, "the disks can't be locked")
	}
	if err := v.makeVCPUs(); err != nil {
		return err
	}
	options, err := v.loadPayload()
	if err != nil {
		return causedBy(err, "the payload can't be loaded")
	}
	v.machine.boot(options)
	v.goOn()
	for id, d := range v.bus.devices {
		if _, net := d.config.(*netConfig); net || d.disk != nil {
			v.vmm.events.emit("virtio-device", "activated", map[string]string{"id": id})
		}
	}
	return nil
}

func (v *vm) makeVCPUs() (err error) {
	if v.endVCPUs == nil {
		v.endVCPUs, err = startVCPUs(&v.vmm.config.Cpus)
	}
	return causedBy(err, "the vCPUs can't be made")
}

// loadPayload looks whether a boot could read it. It is not run, but the made-up
// guest does as one of test/guest's would that is its kernel.
func (v *vm) loadPayload() (o guest.PVHOptions, err error) {
	p := v.vmm.config.Payload
	for _, path := range []string{p.Kernel, p.Firmware, p.Initramfs} {
		if path == "" {
			continue
		}
		file, err := v.vmm.fence.open(path, os.O_RDONLY, 0)
		if err != nil {
			return o, err
		}
		if path == p.Kernel {
			if !isKernel(file) {
				err = fmt.Errorf("%s is no kernel: neither ELF nor bzImage nor Image", filepath.Base(path))
			}
			o, _ = guest.ReadPVHOptions(file)
		}
		file.Close()
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

// isKernel looks for ELF, for Linux' "HdrS" (Documentation/arch/x86/boot.rst) and
// for its "ARM\x64" (Documentation/arch/arm64/booting.rst).
func isKernel(file *os.File) bool {
	at := func(offset int64, want string) bool {
		have := make([]byte, len(want))
		_, err := file.ReadAt(have, offset)
		return err == nil && string(have) == want
	}
	return at(0, elf.ELFMAG) || at(0x202, "HdrS") || at(0x38, "ARM\x64")
}

func (v *vm) goOn() {
	v.state = running
	v.settle()
	v.machine.run()
}

// end stops the guest, and then takes away all that is the VM's.
func (v *vm) end() {
	v.machine.halt()
	if v.endVCPUs != nil {
		v.endVCPUs()
	}
	v.bus.end()
	v.ram.close()
}

// toState says no to what is no way from a state to another.
func (v *vm) toState(next string) error {
	ok := next == paused && (v.state == running || v.state == created) || next == running && v.state != running
	if !ok {
		return fmt.Errorf("a VM that is %s can't become %s", v.state, next)
	}
	return nil
}
