package capabilities

import (
	"fmt"
	"strings"
	"testing"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
)

// under makes models of "name" and "alias=name".
func under(hypervisor, models string) *capabilitiesv1.AcceleratorCapabilities {
	a := &capabilitiesv1.AcceleratorCapabilities{Hypervisor: hypervisor}
	for word := range strings.FieldsSeq(models) {
		name, alias, _ := strings.Cut(word, "=")
		a.CpuModels = append(a.CpuModels, &capabilitiesv1.CpuModel{Name: name, AliasOf: alias})
	}
	return a
}

func TestWithAliases(t *testing.T) {
	vmms := []*capabilitiesv1.VmmCapabilities{
		{Name: "qemu", Accelerators: []*capabilitiesv1.AcceleratorCapabilities{
			under("kvm", "Conroe=Conroe-v1 Conroe-v1 Haswell=Haswell-v1 Haswell-IBRS=Haswell-v3 Haswell-v1 Haswell-v3 old=A-v1 older=A-v1 A-v1 plain"),
			under("emulation", "Penryn=Penryn-v1 Penryn-v1 only=there"),
		}},
		{Name: "another", Accelerators: []*capabilitiesv1.AcceleratorCapabilities{under("kvm", "Conroe=Conroe-v2")}},
		{Name: "broken"},
	}
	for _, c := range []struct{ listed, want string }{
		{"", ""},
		{"nowhere plain nowhere", "nowhere plain"},
		{"Haswell", "Haswell Haswell-v1"},
		{"Haswell-v3", "Haswell-IBRS Haswell-v3"},
		{"older", "A-v1 old older"},
		{"Penryn", "Penryn Penryn-v1"},
		{"there", "only there"}, // a name that is no model of its own
		{"Conroe", "Conroe Conroe-v1 Conroe-v2"},
		{"Conroe-v2", "Conroe Conroe-v2"}, // what it is elsewhere stays
	} {
		if got := withAliases(strings.Fields(c.listed), vmms); fmt.Sprint(got) != "["+c.want+"]" {
			t.Errorf("%s: %q, want %q", c.listed, got, c.want)
		}
	}
}
