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
	balloon, _ := m.config["balloon"].(tree)
	vcpus, hasCPUs := t["desired_vcpus"].(uint64)
	_, hasSize := t["desired_ram"]
	target, hasTarget := t["desired_balloon"].(uint64)
	if m.vm == nil {
		if hasCPUs {
			cpus["boot_vcpus"] = vcpus
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
		return errors.New("memory in zones is resized zone by zone")
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

// resizeZone changes no memory: vmlet has no VM to which some can be added.
func (m *VMM) resizeZone(t tree) error {
	if m.config == nil {
		return errNoVM()
	}
	return fmt.Errorf("memory zone %q can't be resized", t["id"])
}
