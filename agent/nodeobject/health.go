package nodeobject

import (
	"strconv"
	"strings"
)

// Facts are what the labels follow from, at one time.
type Facts struct {
	// Labels of what the machine can do. Those that hang on what could not be
	// asked are among them, as they were.
	Labels map[string]string
	// Schedulable: VMs can be started; nil: not known.
	Schedulable *bool
	// Reason why, for people.
	Reason string
	// CPUManager: the kubelet gives pods CPUs of their own; nil: not known.
	CPUManager *bool
}

// fields are the labels to be written, and those of which nothing is known.
func (f Facts) fields() (known map[field]string, unknown map[field]bool) {
	known, unknown = map[field]string{}, map[field]bool{}
	for key, value := range f.Labels {
		known[label(key)] = value
	}
	for key, state := range map[string]*bool{LabelSchedulable: f.Schedulable, LabelCPUManager: f.CPUManager} {
		if state == nil {
			unknown[label(key)] = true
		} else {
			known[label(key)] = strconv.FormatBool(*state)
		}
	}
	return known, unknown
}

// isHealth: a field says something of a running agent, not of the machine.
func isHealth(f field) bool {
	return f.kind == annotationField || f.key == LabelSchedulable || f.key == LabelCPUManager
}

// isKubeVirt: a field is one of KubeVirt's families, which a virt-handler writes.
func isKubeVirt(f field) bool {
	domain, _, _ := strings.Cut(f.key, "/")
	return domain == "kubevirt.io" || strings.HasSuffix(domain, ".kubevirt.io")
}
