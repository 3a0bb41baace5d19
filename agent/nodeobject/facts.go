package nodeobject

import (
	"context"
	"errors"
	"strconv"

	"github.com/vmlet/vmlet/contract"
)

// ErrNoFacts is returned by a Source that has no facts yet.
var ErrNoFacts = errors.New("the machine has not been asked yet")

// Source is what the labels follow from.
type Source interface {
	// Facts returns the current facts, or ErrNoFacts. previous are vmlet's labels on the
	// Node: what could not be probed keeps its label. After an error it is called again
	// only when Changed is closed.
	Facts(ctx context.Context, previous map[string]string) (Facts, error)
	// Changed is closed when the facts differ from those that Facts returns after this
	// call.
	Changed() <-chan struct{}
}

// Facts are what the labels follow from, at one time.
type Facts struct {
	// Labels of what the machine can do. They include those that depend on what could
	// not be probed, with their former values.
	Labels map[string]string
	// Annotations beside them.
	Annotations map[string]string
	// Schedulable: VMs can be started; nil: not known.
	Schedulable *bool
	// Reason why, for people.
	Reason string
	// CPUManager: the kubelet gives pods CPUs of their own; nil: not known.
	CPUManager *bool
}

// fields returns the labels to write, and those whose values are unknown.
func (f Facts) fields() (known map[field]string, unknown map[field]bool) {
	known, unknown = map[field]string{}, map[field]bool{}
	for key, value := range f.Labels {
		known[label(key)] = value
	}
	for key, value := range f.Annotations {
		known[annotation(key)] = value
	}
	for key, state := range map[string]*bool{contract.LabelSchedulable: f.Schedulable, contract.LabelCPUManager: f.CPUManager} {
		if state == nil {
			unknown[label(key)] = true
		} else {
			known[label(key)] = strconv.FormatBool(*state)
		}
	}
	return known, unknown
}
