package chtest

import (
	"errors"
	"fmt"
	"net/http"
)

// resize changes a VM that is booted step by step: what was done before a step
// that fails stays. Without one only the configuration is changed, unchecked.
func (m *VMM) resize(t tree) error {
	if m.config == nil {
		return errNoVM()
	}
	cpus, _ := m.config["cpus"].(tree)
	memory, _ := m.config["memory"].(tree)
	balloon, _ := m.config["balloon"].(tree)
	vcpus, hasCPUs := t["desired_vcpus"].(uint64)
	size, hasSize := t["desired_ram"].(uint64)
	target, hasTarget := t["desired_balloon"].(uint64)
	if m.vm == nil {
		if hasCPUs {
			cpus["boot_vcpus"] = vcpus
		}
		if hasSize {
			memory["size"] = size
		}
		if hasTarget && balloon != nil {
			balloon["size"] = target
		}
		return nil
	}
	m.events.emit("vm", "resizing", nil)
	if hasCPUs {
		if err := m.vm.resizeCPUs(vcpus); err != nil {
			return err
		}
		cpus["boot_vcpus"] = vcpus
	}
	if hasSize {
		if err := m.vm.resizeRAM(size, memory); err != nil {
			return err
		}
	}
	if hasTarget {
		if balloon == nil {
			return errors.New("there is no balloon")
		}
		balloon["size"] = target
	}
	m.events.emit("vm", "resized", nil)
	return nil
}

func (v *vm) resizeCPUs(want uint64) error {
	switch {
	case want == v.vcpus:
		return nil
	case want == 0:
		return errors.New("0 vCPUs are none")
	case v.fewer > 0:
		return &fault{http.StatusTooManyRequests, []string{http.StatusText(http.StatusTooManyRequests)}}
	case want > v.config.Cpus.Max:
		return fmt.Errorf("%d vCPUs are more than max_vcpus %d", want, v.config.Cpus.Max)
	}
	if want > v.vcpus {
		v.vcpus = want
		return nil
	}
	v.fewer = want
	v.settle()
	return nil
}

// resizeRAM adds memory, in the way that the configuration has. Without room for
// it nothing happens, and nothing is said.
func (v *vm) resizeRAM(want uint64, memory tree) error {
	const (
		slots = 8
		step  = 128 << 20
	)
	c := v.config.Memory
	if v.ram.zoned {
		return errors.New("memory in zones is resized zone by zone")
	}
	if c.Method == "VirtioMem" {
		boot := c.Size
		switch {
		case want < boot:
			return fmt.Errorf("%d bytes are less than the %d of the boot", want, boot)
		case c.Hotplug == nil:
		case want-boot > *c.Hotplug, (want-boot)%virtioMemBlock != 0:
			return fmt.Errorf("%d bytes can't be added, with room for %d", want-boot, *c.Hotplug)
		}
		delete(memory, "hotplugged_size")
		if want > boot {
			memory["hotplugged_size"] = want - boot
		}
		v.memory = want
		return nil
	}
	if want > v.memory && c.Hotplug != nil {
		switch added := want - v.memory; {
		case v.plugged == slots:
			return errors.New("all memory slots are in use")
		case added%step != 0:
			return fmt.Errorf("%d bytes are no multiple of 128 MiB", added)
		case want-c.Size > *c.Hotplug:
			return fmt.Errorf("%d bytes can't be added, with room for %d", want-c.Size, *c.Hotplug)
		}
		v.plugged++
		v.memory = want
	}
	memory["size"] = want
	return nil
}

func (m *VMM) resizeZone(t tree) error {
	if m.config == nil {
		return errNoVM()
	}
	want, _ := t["desired_ram"].(uint64)
	memory, _ := m.config["memory"].(tree)
	for _, zone := range items(memory, "zones") {
		if zone["id"] != t["id"] {
			continue
		}
		if m.vm == nil {
			zone["size"] = want
			return nil
		}
		size, _ := zone["size"].(uint64)
		room, virtio := zone["hotplug_size"].(uint64)
		if want < size || !virtio || want-size > room || (want-size)%virtioMemBlock != 0 {
			return fmt.Errorf("zone %q of %d bytes can't become %d", t["id"], size, want)
		}
		zone["hotplugged_size"] = want - size
		return nil
	}
	return fmt.Errorf("there is no memory zone %q", t["id"])
}

func (m *VMM) resizeDisk(t tree) error {
	if m.config == nil {
		return errNoVM()
	}
	if m.vm == nil {
		return errNotBooted()
	}
	id, _ := t["id"].(string)
	size, _ := t["desired_size"].(uint64)
	d := m.vm.bus.devices[id]
	switch {
	case d == nil || d.disk == nil:
		return fmt.Errorf("there is no disk %q", id)
	case !d.disk.raw:
		return fmt.Errorf("disk %q is not raw", id)
	case size%512 != 0 || size > 1<<62:
		return fmt.Errorf("%d bytes are no size of a disk", size)
	}
	return d.disk.file.Truncate(int64(size))
}
