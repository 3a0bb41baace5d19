// Package labels says which labels a node carries: those that KubeVirt's node
// labeller writes, so that its scheduling works unchanged, and a few of vmlet's
// own. They follow from the capabilities document and from nothing else.
//
// docs/labels.md lists them all, with who reads them.
package labels

import (
	"fmt"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"strings"
)

// Set is what follows from one document. It is read only.
type Set struct {
	// Labels by key; keys and values are valid in Kubernetes.
	Labels map[string]string
	// Notes say, a sentence each, what could not become a label as it was.
	Notes []string

	choice choice
}

// Of returns the labels of a node whose guests run under the given hypervisor;
// empty: under the document's default. A hypervisor that the document doesn't
// have is an error. Of one document the set is always the same, whatever the
// order of its lists.
func Of(doc *capabilitiesv1.Capabilities, hypervisor string) (Set, error) {
	v, err := newView(doc, hypervisor)
	if err != nil {
		return Set{}, err
	}
	c := collector{labels: map[string]string{}}
	for _, f := range families() {
		f.labels(v, func(name, value string) { c.add(f, name, value) })
	}
	return Set{Labels: c.labels, Notes: append(v.notes(), c.notes...), choice: v.choice}, nil
}

// collector makes names and values valid and puts them together.
type collector struct {
	labels map[string]string
	notes  []string
}

// add takes one label of a family; the name is empty where the family is one
// label only.
func (c *collector) add(f family, name, value string) {
	if f.many() && name == "" {
		c.notef("%s: one without a name is left out", f.key)
		return
	}
	domain, stem, _ := strings.Cut(f.key, "/")
	whole := encode(stem + name)
	if whole != stem+name {
		c.notef("%s: %.80q can't be in a label's key: it is %s there", f.key, name, whole)
	}
	key, valid := domain+"/"+whole, encode(value)
	if valid != value {
		c.notef("%s: %.80q can't be a label's value: it is %s there", key, value, valid)
	}
	// Said twice: one of the two wins, the same one whatever their order.
	if old, twice := c.labels[key]; !twice || valid > old {
		c.labels[key] = valid
	}
}

func (c *collector) notef(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}
