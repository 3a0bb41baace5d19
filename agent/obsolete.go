package agent

import (
	"slices"
	"strings"
)

// obsoleteByItself are the CPU models that KubeVirt's node labeller takes for
// obsolete unless it is told otherwise: what no guest should be run on today.
// QEMU has each under its name and as the first version of it.
func obsoleteByItself() []string {
	var models []string
	for _, name := range []string{
		"486", "pentium", "pentium2", "pentium3", "pentiumpro", "coreduo", "core2duo", "n270", "Conroe",
		"athlon", "phenom", "Opteron_G1", "Opteron_G2", "qemu32", "qemu64", "kvm32", "kvm64",
	} {
		models = append(models, name, name+firstVersion)
	}
	return models
}

// firstVersion ends the name of a model's first version.
const firstVersion = "-v1"

// ObsoleteModels are the CPU models that are not offered, sorted.
func (c Config) ObsoleteModels() []string {
	var models []string
	for _, name := range obsoleteByItself() {
		// What is said of a model holds for its first version too.
		base := strings.TrimSuffix(name, firstVersion)
		if obsolete, said := c.ObsoleteCPUModels[base]; obsolete || !said {
			models = append(models, name)
		}
	}
	for name, obsolete := range c.ObsoleteCPUModels {
		if obsolete {
			models = append(models, name)
		}
	}
	slices.Sort(models)
	return slices.DeleteFunc(slices.Compact(models), func(name string) bool {
		obsolete, said := c.ObsoleteCPUModels[name]
		return said && !obsolete
	})
}
