package nodeobject

import (
	"context"
	"errors"
	"strconv"
)

// ErrNoFacts is a Source's that has none yet.
var ErrNoFacts = errors.New("the machine has not been asked yet")

// Source is what the labels follow from.
type Source interface {
	// Facts are those of now, or ErrNoFacts. previous are the labels of vmlet's that the Node
	// has: what could not be asked stays as it was. It is called again after an
	// error only when something has changed.
	Facts(ctx context.Context, previous map[string]string) (Facts, error)
	// Changed is closed when the facts are others than those that Facts returns
	// if it is called before.
	Changed() <-chan struct{}
}

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
