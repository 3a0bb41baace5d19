package dedicated

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// TestPlace: threads of a core stay together, a node's vCPUs follow one another, and there are neither too few
// nor too many CPUs.
func TestPlace(t *testing.T) {
	// Of 16 CPUs, n and n+8 are a core's; the even ones are in node 0, the odd ones in node 1.
	where := func(cpu int) CPU { return CPU{Core: fmt.Sprint(cpu % 8), Node: cpu % 2} }
	for name, c := range map[string]struct {
		wanted        Wanted
		cpus          []int
		vcpus, others []int // none: an error
	}{
		"one":                     {Wanted{VCPUs: 1}, []int{3}, []int{3}, []int{3}},
		"siblings":                {Wanted{VCPUs: 4}, []int{2, 4, 10, 12}, []int{2, 10, 4, 12}, []int{2, 10, 4, 12}},
		"in another order":        {Wanted{VCPUs: 4}, []int{12, 10, 4, 2}, []int{2, 10, 4, 12}, []int{2, 10, 4, 12}},
		"a core and a CPU":        {Wanted{VCPUs: 2, Isolate: true}, []int{0, 2, 10}, []int{2, 10}, []int{0}},
		"a core in the middle":    {Wanted{VCPUs: 4}, []int{2, 4, 12, 6}, []int{4, 12, 2, 6}, []int{4, 12, 2, 6}},
		"isolated":                {Wanted{VCPUs: 2, Isolate: true}, []int{0, 8, 2}, []int{0, 8}, []int{2}},
		"a core for the VMM":      {Wanted{VCPUs: 2, Isolate: true}, []int{0, 8, 2, 10}, []int{0, 8}, []int{2, 10}},
		"the VMM away":            {Wanted{VCPUs: 2, Isolate: true}, []int{0, 1, 2}, []int{0, 2}, []int{1}},
		"the VMM's core away":     {Wanted{VCPUs: 4, Isolate: true}, []int{0, 8, 2, 10, 1, 9}, []int{0, 8, 2, 10}, []int{1, 9}},
		"two nodes":               {Wanted{VCPUs: 4}, []int{0, 1, 2, 3}, []int{0, 2, 1, 3}, []int{0, 2, 1, 3}},
		"cores of two nodes":      {Wanted{VCPUs: 4}, []int{1, 9, 4, 12}, []int{4, 12, 1, 9}, []int{4, 12, 1, 9}},
		"a node's lone CPU":       {Wanted{VCPUs: 4, Isolate: true}, []int{0, 1, 9, 3, 11}, []int{1, 9, 3, 11}, []int{0}},
		"whole cores of a node":   {Wanted{VCPUs: 5}, []int{0, 2, 10, 1, 9}, []int{2, 10, 0, 1, 9}, []int{2, 10, 0, 1, 9}},
		"too few":                 {Wanted{VCPUs: 2}, []int{0}, nil, nil},
		"too many: not dedicated": {Wanted{VCPUs: 2}, []int{0, 1, 2}, nil, nil},
		"three for the VMM":       {Wanted{VCPUs: 1, Isolate: true}, []int{0, 1, 2, 3}, nil, nil},
		"none for the VMM":        {Wanted{VCPUs: 2, Isolate: true}, []int{0, 1}, nil, nil},
	} {
		p, err := Place(c.wanted, c.cpus, where)
		if (err == nil) != (c.vcpus != nil) {
			t.Errorf("%s: %v", name, err)
		} else if err == nil && !reflect.DeepEqual(p, Placement{c.vcpus, c.others}) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestNodes(t *testing.T) {
	p := Placement{VCPUs: []int{0, 2, 1}}
	where := func(cpu int) CPU { return CPU{Node: cpu % 2} }
	for _, c := range []struct {
		vcpus, want []int
	}{{[]int{0, 1}, []int{0}}, {[]int{2}, []int{1}}, {[]int{2, 0}, []int{0, 1}}} {
		if got := p.Nodes(c.vcpus, where); !slices.Equal(got, c.want) {
			t.Errorf("nodes of vCPUs %v: %v, want %v", c.vcpus, got, c.want)
		}
	}
}
