package agent

import "slices"

// obsoleteByItself are the CPU models that KubeVirt's node labeller takes for
// obsolete unless it is told otherwise: what no guest should be run on today.
func obsoleteByItself() []string {
	return []string{
		"486", "pentium", "pentium2", "pentium3", "pentiumpro", "coreduo", "core2duo", "n270", "Conroe",
		"athlon", "phenom", "qemu32", "qemu64", "kvm32", "kvm64",
	}
}

// ObsoleteModels are the CPU models that are not offered, sorted.
func (c Config) ObsoleteModels() []string {
	var models []string
	for _, name := range obsoleteByItself() {
		if obsolete, said := c.ObsoleteCPUModels[name]; obsolete || !said {
			models = append(models, name)
		}
	}
	for name, obsolete := range c.ObsoleteCPUModels {
		if obsolete {
			models = append(models, name)
		}
	}
	slices.Sort(models)
	return slices.Compact(models)
}
