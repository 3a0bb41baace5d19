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
}

// differences are all that are known to be between libvirt 9.0 and vmlet, with
// QEMU 7.2 and 10.0, under KVM and under emulation.
func differences() []difference {
	return []difference{
		{[]kind{machineType}, onlyVMLet, []string{"none"},
			"no machine at all; libvirt leaves it out, and vmlet says that it is not supported"},
		{[]kind{cpuModel, usableModel, modelVendor}, onlyVMLet, []string{"*-v[0-9]", "*-v[0-9]: *"},
			"versions of a model; libvirt 9.0 knows those only that have a name of their own (Haswell-noTSX for Haswell-v2)"},
		{[]kind{cpuModel, usableModel, modelVendor}, onlyVMLet, []string{
			"ClearwaterForest*", "Denverton*", "EPYC-Genoa*", "GraniteRapids*", "KnightsMill*", "SapphireRapids*", "SierraForest*", "YongFeng*"},
			"models that libvirt 9.0 has no definition of"},
		{[]kind{cpuFeature, hostRequires}, onlyVMLet, []string{
			"amd-psfd", "cmpccxadd", "fsrc", "fsrs", "fzrm", "gds-no", "lfence-always-serializing", "overflow-recov", "rfds-no", "stibp-always-on", "succor"},
			"features that libvirt 9.0 has no name for; later versions use QEMU's, as vmlet does"},
		{[]kind{hostRequires}, onlyLibvirt, []string{"npt"},
			"nested paging: QEMU's EPYC has it and libvirt's definition of EPYC hasn't, so that libvirt adds it; the guest gets the same"},
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
