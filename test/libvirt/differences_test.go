package libvirt

import (
	"fmt"
	"path"
	"strings"
)

// knownLibvirt is the version that the differences are those of.
const knownLibvirt = "9.0"

// side has a fact that the other hasn't.
type side string

const (
	onlyLibvirt side = "libvirt"
	onlyVMLet   side = "vmlet"
)

// difference is one that is known, and why.
type difference struct {
	kinds  []kind
	only   side
	names  []string // patterns as path.Match has them
	reason string
	// someHosts: the difference shows only under KVM, on some processors.
	someHosts bool
}

// differences are all that are known to be between libvirt 9.0 and vmlet, with
// QEMU 7.2 and 10.0, under KVM and under emulation.
func differences() []difference {
	return []difference{
		{kinds: []kind{machineType}, only: onlyVMLet, names: []string{"none"},
			reason: "no machine at all; libvirt leaves it out, and vmlet says that it is not supported"},
		{kinds: []kind{cpuModel, usableModel, modelVendor}, only: onlyVMLet, names: []string{"*-v[0-9]", "*-v[0-9]: *"},
			reason: "versions of a model; libvirt 9.0 knows those only that have a name of their own (Haswell-noTSX for Haswell-v2)"},
		{kinds: []kind{cpuModel, usableModel, modelVendor}, only: onlyVMLet, names: []string{
			"ClearwaterForest*", "Denverton*", "EPYC-Genoa*", "GraniteRapids*", "KnightsMill*", "SapphireRapids*", "SierraForest*", "YongFeng*"},
			reason: "models that libvirt 9.0 has no definition of"},
		{kinds: []kind{namelessFeature}, only: onlyVMLet, names: []string{"*"},
			reason: "such as `amd-psfd`, `gds-no` and `succor`, by processor; later versions use QEMU's names, as vmlet does"},
		{kinds: []kind{hostRequires}, only: onlyLibvirt, names: []string{"npt"},
			reason: "nested paging: QEMU's EPYC has it and libvirt's definition of EPYC hasn't, so that libvirt adds it; the guest gets the same"},
		{kinds: []kind{hostDisables}, only: onlyVMLet, names: []string{"topoext"}, someHosts: true,
			reason: "on AMD's processors, under KVM: QEMU's EPYC models have it and `-cpu host` hasn't, so that vmlet takes it away; " +
				"libvirt's definitions haven't, so that its guests get it from QEMU's model"},
	}
}

func (d difference) explains(k kind, s side, name string) bool {
	if s != d.only {
		return false
	}
	for _, of := range d.kinds {
		for _, pattern := range d.names {
			if fits, err := path.Match(pattern, name); k == of && err == nil && fits {
				return true
			}
		}
	}
	return false
}

// table is that of docs/libvirt-differences.md.
func table(of []difference) string {
	var out strings.Builder
	out.WriteString("| what | who alone has it | which | why |\n| --- | --- | --- | --- |\n")
	for _, d := range of {
		kinds := make([]string, len(d.kinds))
		for i, k := range d.kinds {
			kinds[i] = string(k)
		}
		fmt.Fprintf(&out, "| %s | %s | `%s` | %s |\n", strings.Join(kinds, ", "), d.only, strings.Join(d.names, "`, `"), d.reason)
	}
	return out.String()
}
