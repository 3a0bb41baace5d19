package sources

import (
	"maps"
	"slices"
)

// obsoleteByItself are the CPU models that KubeVirt's node labeller takes for
// obsolete unless configured otherwise: what no guest should be run on today.
func obsoleteByItself() []string {
	return []string{
		"486", "pentium", "pentium2", "pentium3", "pentiumpro", "coreduo", "core2duo", "n270", "Conroe",
		"athlon", "phenom", "Opteron_G1", "Opteron_G2", "qemu32", "qemu64", "kvm32", "kvm64",
	}
}

// ObsoleteModels are the CPU models that are not offered, sorted. Other names of
// them are the capabilities' to find.
func (c Config) ObsoleteModels() []string {
	models := make(map[string]bool)
	for _, name := range obsoleteByItself() {
		models[name] = true
	}
	maps.Copy(models, c.ObsoleteCPUModels)
	maps.DeleteFunc(models, func(_ string, obsolete bool) bool { return !obsolete })
	return slices.Sorted(maps.Keys(models))
}
