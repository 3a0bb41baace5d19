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
func (m *VMM) create(t tree) error {
	if m.config != nil {
		return errExists
	}
	// Descriptors don't come with this call, so none is known.
	for _, net := range items(t, "net") {
		delete(net, "fds")
	}
	m.config = t
	if err := m.openConsoles(); err != nil {
		return err
	}
	return m.restrict()
}

// restrict lets Landlock take hold, if the configuration says so.
func (m *VMM) restrict() error {
	c, err := look(m.config)
	if err != nil || !c.Landlock {
		return err
	}
	return causedBy(m.fence.restrict(c), "Landlock")
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
	c, err := look(m.config)
	if err != nil {
		return nil, err
	}
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
func (m *VMM) addDevice(list deviceList, r *request, t tree) (any, error) {
	if list.field == "net" {
		m.takeFiles(r, t)
	}
	answer, err := m.tryAdd(list, t)
	if err != nil {
		m.closeDescriptors(t)
	}
	return answer, err
}

func (m *VMM) tryAdd(list deviceList, t tree) (any, error) {
	if m.config == nil {
		return nil, errNoVM()
	}
	next, _ := clone(m.config).(tree)
	addItem(next, list.field, t)
	c, err := look(next)
	if err == nil {
		err = causedBy(c.validate(), "the configuration is not valid")
	}
	if err != nil {
		return nil, err
	}
	if m.vm == nil {
		addItem(m.config, list.field, t)
		return nil, nil
	}
	d, err := m.vm.add(list, t)
	if err != nil {
		return nil, err
	}
	if err := d.disk.lock(); err != nil {
		m.vm.bus.unplug(d)
		return nil, err
	}
	addItem(m.config, list.field, t)
	return map[string]string{"id": d.id, "bdf": d.bdf}, nil
}

// takeFiles makes the files that came with a request a network device's. Numbers
// that its body has mean nothing.
func (m *VMM) takeFiles(r *request, t tree) {
	delete(t, "fds")
	if len(r.files) == 0 {
		return
	}
	t["fds"] = m.keep(r.files)
	r.files = nil
}

// keep takes files in, and returns their numbers.
func (m *VMM) keep(files []*os.File) []any {
	var numbers []any
	for _, file := range files {
		fd := int(file.Fd())
		m.descriptors[fd] = file
		numbers = append(numbers, fd)
	}
	return numbers
}

func (m *VMM) closeDescriptors(t tree) {
	numbers, _ := t["fds"].([]any)
	for _, number := range numbers {
		if fd, ok := number.(int); ok && m.descriptors[fd] != nil {
			m.descriptors[fd].Close()
			delete(m.descriptors, fd)
		}
	}
}

// removeDevice asks the guest to let go of a device. The configuration is without
// it at once.
func (m *VMM) removeDevice(t tree) error {
	id, _ := t["id"].(string)
	if m.vm == nil {
		if m.config == nil {
			return errNoVM()
		}
		if !removeItem(m.config, id) {
			return fmt.Errorf("there is no device %q", id)
		}
		return nil
	}
	d := m.vm.bus.devices[id]
	if d == nil || d.ejecting {
		return fmt.Errorf("there is no device %q", id)
	}
	switch d.kind {
	case "": // one that a boot made of another part of the configuration
		return fmt.Errorf("device %q can't be removed", id)
	}
	for _, device := range items(m.config, "net") {
		if device["id"] == id {
			m.closeDescriptors(device)
		}
	}
	removeItem(m.config, id)
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
