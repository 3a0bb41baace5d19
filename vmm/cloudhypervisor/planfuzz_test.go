package cloudhypervisor_test

import (
	"errors"
	"testing"

	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/vmtest"
)

// FuzzPlan wants of every specification that is valid a plan in which all is in
// order, or its faults by their fields: before its defaults are filled in, and after.
func FuzzPlan(f *testing.F) {
	for i, c := range vmtest.Cases() {
		f.Add("name: web-1\n"+c.YAML, uint8(i))
	}
	f.Fuzz(func(t *testing.T, text string, kind uint8) {
		s, err := spec.Parse([]byte(text), "fuzz.yaml")
		if err != nil {
			return
		}
		c := vmtest.Case{YAML: vmtest.Small, Arch: spec.ArchAMD64, Hypervisor: spec.HypervisorKVM}
		if kind&1 != 0 {
			c.Arch = spec.ArchARM64
		}
		if kind&2 != 0 {
			c.Hypervisor = spec.HypervisorMSHV
		}
		r := c.Request(t)
		if kind&4 != 0 {
			r.Image = vmtest.Image(kind&8 != 0)
		}
		for i := range s.GetNetworks() {
			r.Taps = append(r.Taps, i-int(kind>>4&1))
		}
		r.Spec = s
		tryPlan(t, r)
		r.Spec = vmtest.WithDefaults(s, c.Arch, c.Hypervisor)
		tryPlan(t, r)
	})
}

func tryPlan(t *testing.T, r vmm.PlanRequest) {
	p, err := vmtest.Plan(r)
	var faults spec.FieldErrors
	switch {
	case err == nil:
		checkPlan(t, p)
		p.VM.Restored()
	case !errors.As(err, &faults) || len(faults) == 0:
		t.Fatalf("%T: %v", err, err)
	}
}
