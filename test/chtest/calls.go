package chtest

import (
	"errors"
	"fmt"
	"os"
	"time"
)

var errExists = errors.New("there is a VM already")

// create keeps the configuration. It is not checked before a boot; but consoles
// are opened, and Landlock takes hold. What fails then leaves the VM created.
func (m *VMM) create(c *config) error {
	if m.config != nil {
		return errExists
	}
	// Descriptors don't come with this call, so none is known.
	for i := range c.Net {
		c.Net[i].Fds = nil
		c.Net[i].address()
	}
	m.config = c
	if err := m.openConsoles(); err != nil {
		return err
	}
	return m.restrict()
}

// restrict lets Landlock take hold, if the configuration says so.
func (m *VMM) restrict() error {
	if !m.config.Landlock {
		return nil
	}
	return causedBy(m.fence.restrict(m.config), "Landlock")
}

func (m *VMM) boot() error {
	if m.vm != nil {
		return errExists
	}
	m.events.emit("vm", "booting", nil)
	if m.config == nil {
		return errNoVM()
	}
	if err := m.openConsoles(); err != nil {
		return err
	}
	v, err := m.newVM(nil)
	if err != nil {
		return err
	}
	m.vm = v
	if err := v.start(); err != nil {
		return err
	}
	m.events.emit("vm", "booted", nil)
	return nil
}

func (m *VMM) pause() error {
	if m.vm == nil {
		return errNotBooted()
	}
	m.events.emit("vm", "pausing", nil)
	if err := m.vm.toState(paused); err != nil {
		return err
	}
	m.vm.machine.halt()
	m.vm.state = paused
	m.events.emit("vm", "paused", nil)
	return nil
}

func (m *VMM) resume() error {
	if m.vm == nil {
		return errNotBooted()
	}
	m.events.emit("vm", "resuming", nil)
	if err := m.vm.toState(running); err != nil {
		return err
	}
	m.vm.goOn()
	m.events.emit("vm", "resumed", nil)
	return nil
}

func (m *VMM) shutdown() error {
	if m.vm == nil {
		return errNotBooted()
	}
	m.vm.end()
	m.vm = nil
	m.events.emit("vm", "shutdown", nil)
	return nil
}

func (m *VMM) delete() error {
	if m.config == nil {
		return nil
	}
	if m.vm != nil {
		if err := m.shutdown(); err != nil {
			return err
		}
	}
	m.config, m.serial = nil, nil
	for _, file := range m.descriptors {
		file.Close()
	}
	clear(m.descriptors)
	m.events.emit("vm", "deleted", nil)
	return nil
}

func (m *VMM) shutdownCall() error {
	m.leaving = true
	m.shutdownVMM()
	return nil
}

// shutdownVMM is what comes before the VMM leaves.
func (m *VMM) shutdownVMM() {
	if m.delete() == nil {
		m.events.emit("vmm", "shutdown", nil)
	}
}

func (m *VMM) reboot() error {
	m.events.emit("vm", "rebooting", nil)
	if m.vm == nil {
		return errNoVM()
	}
	m.vm.end()
	m.vm = nil
	v, err := m.newVM(nil)
	if err != nil {
		return err
	}
	if err := v.start(); err != nil {
		v.end()
		return err
	}
	m.vm = v
	m.events.emit("vm", "rebooted", nil)
	return nil
}

func (m *VMM) powerButton() error {
	if m.vm == nil {
		return errNotBooted()
	}
	m.vm.machine.press()
	return nil
}

// nmi is of no effect on the guest.
func (m *VMM) nmi() error {
	if m.vm == nil {
		return errNotBooted()
	}
	return nil
}

func (m *VMM) info() (any, error) {
	if m.config == nil {
		return nil, errNoVM()
	}
	c := m.config
	out := map[string]any{"config": m.config, "state": created}
	size := c.Memory.boot()
	if m.vm != nil {
		out["state"], out["device_tree"] = m.vm.state, m.vm.bus.tree()
		if c.Balloon != nil {
			size -= min(size, c.Balloon.Size)
		}
	}
	out["memory_actual_size"] = size
	return out, nil
}

func (m *VMM) counters() (any, error) {
	if m.vm == nil {
		return nil, errNotBooted()
	}
	return m.vm.bus.counters(), nil
}

// addDevice puts a device into a VM that is booted, or into the configuration of
// one that will be. The configuration must stay valid.
func (m *VMM) addDevice(r *request, d deviceConfig) (any, error) {
	net, is := d.(*netConfig)
	if is {
		net.address()
		net.Fds = nil // numbers that come in a body mean nothing
		if len(r.files) > 0 {
			net.Fds = m.keep(r.files)
			r.files = nil
		}
	}
	answer, err := m.tryAdd(d)
	if err != nil && is {
		m.closeDescriptors(net)
	}
	return answer, err
}

func (m *VMM) tryAdd(c deviceConfig) (any, error) {
	if m.config == nil {
		return nil, errNoVM()
	}
	if err := m.config.with(c).validate(); err != nil {
		return nil, causedBy(err, "the configuration is not valid")
	}
	if m.vm == nil {
		m.config = m.config.with(c)
		return nil, nil
	}
	d, err := m.vm.add(c)
	if err != nil {
		return nil, err
	}
	if err := d.disk.lock(); err != nil {
		m.vm.bus.unplug(d)
		return nil, err
	}
	m.config = m.config.with(c)
	return map[string]string{"id": d.id, "bdf": d.bdf}, nil
}

// keep takes files in, and returns their numbers.
func (m *VMM) keep(files []*os.File) []int {
	var numbers []int
	for _, file := range files {
		fd := int(file.Fd())
		m.descriptors[fd] = file
		numbers = append(numbers, fd)
	}
	return numbers
}

func (m *VMM) closeDescriptors(net *netConfig) {
	for _, fd := range net.Fds {
		if m.descriptors[fd] != nil {
			m.descriptors[fd].Close()
			delete(m.descriptors, fd)
		}
	}
}

// removeDevice asks the guest to let go of a device. The configuration is without
// it at once.
func (m *VMM) removeDevice(id string) error {
	if m.config == nil {
		return errNoVM()
	}
	if m.vm == nil {
		if !m.config.remove(id) {
			return fmt.Errorf("there is no device %q", id)
		}
		return nil
	}
	d := m.vm.bus.devices[id]
	if d == nil || d.ejecting {
		return fmt.Errorf("there is no device %q", id)
	}
	if d.config == nil { // one that a boot made of another part of the configuration
		return fmt.Errorf("device %q can't be removed", id)
	}
	if net, is := d.config.(*netConfig); is {
		m.closeDescriptors(net)
	}
	m.config.remove(id)
	d.ejecting = true
	m.vm.settle()
	return nil
}

// settle lets the guest do what it was asked for, some time later and if it runs
// then; else it will when it goes on.
func (v *vm) settle() {
	k := v.vmm.knobs()
	time.AfterFunc(milliseconds(k.Tick+k.Eject), func() {
		v.vmm.mu.Lock()
		defer v.vmm.mu.Unlock()
		if v.vmm.vm != v || v.state != running || v.machine.options().KeepDevices {
			return
		}
		if v.fewer > 0 {
			v.vcpus, v.fewer = v.fewer, 0
		}
		for _, d := range v.bus.devices {
			if d.ejecting {
				v.bus.unplug(d)
				v.vmm.events.emit("vm", "device-removed", map[string]string{"id": d.id, "bdf": d.bdf})
			}
		}
	})
}
