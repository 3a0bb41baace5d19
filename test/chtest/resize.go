package chtest

import (
	"errors"
	"fmt"
	"net/http"
)

// resize changes a VM that is booted step by step: what was done before a step
// that fails stays. Without one only the configuration is changed, unchecked.
func (m *VMM) resize(to *resizeBody) error {
	c := m.config
	if c == nil {
		return errNoVM()
	}
	if m.vm != nil {
		m.events.emit("vm", "resizing", nil)
	}
	if to.VCPUs != nil {
		if m.vm != nil {
			if err := m.vm.resizeCPUs(*to.VCPUs, c.Cpus.Max); err != nil {
				return err
			}
		}
		c.Cpus.Boot = *to.VCPUs
	}
	if to.RAM != nil && m.vm != nil {
		return errors.New("memory in zones is resized zone by zone")
	}
	switch {
	case to.Balloon != nil && c.Balloon != nil:
		c.Balloon.Size = *to.Balloon
	case to.Balloon != nil && m.vm != nil:
		return errors.New("there is no balloon")
	}
	if m.vm != nil {
		m.events.emit("vm", "resized", nil)
	}
	return nil
}

func (v *vm) resizeCPUs(want, most uint32) error {
	switch {
	case want == v.vcpus:
		return nil
	case want == 0:
		return errors.New("0 vCPUs are none")
	case v.fewer > 0:
		return &fault{http.StatusTooManyRequests, []string{http.StatusText(http.StatusTooManyRequests)}}
	case want > most:
		return fmt.Errorf("%d vCPUs are more than max_vcpus %d", want, most)
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
func (m *VMM) resizeZone(b *resizeZoneBody) error {
	if m.config == nil {
		return errNoVM()
	}
	return fmt.Errorf("memory zone %q can't be resized", b.ID)
}
