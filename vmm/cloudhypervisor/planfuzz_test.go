package cloudhypervisor

import (
	"errors"
	"testing"

	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
)

// FuzzPlan wants of every specification that is valid a plan in which all is in
// order, or its faults by their fields: before its defaults are filled in, and after.
func FuzzPlan(f *testing.F) {
	for i, c := range planCases() {
		f.Add("name: web-1\n"+c.yaml, uint8(i))
	}
	f.Fuzz(func(t *testing.T, text string, kind uint8) {
		s, err := spec.Parse([]byte(text), "fuzz.yaml")
		if err != nil {
			return
		}
		c := planCase{yaml: small, arch: spec.ArchAMD64, hypervisor: spec.HypervisorKVM}
		if kind&1 != 0 {
			c.arch = spec.ArchARM64
		}
		if kind&2 != 0 {
			c.hypervisor = spec.HypervisorMSHV
		}
		r := c.request(t)
		if kind&4 != 0 {
			r.Image = testImage(kind&8 != 0)
		}
		for i := range s.GetNetworks() {
			r.Taps = append(r.Taps, i-int(kind>>4&1))
		}
		r.Spec = s
		tryPlan(t, r)
		r.Spec = withDefaults(s, c.arch, c.hypervisor)
		tryPlan(t, r)
	})
}

func tryPlan(t *testing.T, r vmm.PlanRequest) {
	p, err := planVM(r)
	var faults spec.FieldErrors
	switch {
	case err == nil:
		checkPlan(t, p)
		p.vm.Restored()
	case !errors.As(err, &faults) || len(faults) == 0:
		t.Fatalf("%T: %v", err, err)
	}
}
