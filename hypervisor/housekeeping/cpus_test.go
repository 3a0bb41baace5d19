package housekeeping

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/sysfs"
)

// machine has nodes of cores of two threads each, numbered as Intel's firmware does: first every core's first thread.
func machine(nodes, cores int) *sysfs.Host {
	h := &sysfs.Host{}
	total := nodes * cores
	for id := range 2 * total {
		core := id % total
		h.CPUs = append(h.CPUs, sysfs.CPU{ID: id, Online: true, Allowed: true, Core: core, Thread: id / total, Node: core / cores})
	}
	return h
}

func TestChoose(t *testing.T) {
	node := func(n int) *int { return &n }
	change := func(h *sysfs.Host, f func(c *sysfs.CPU), ids ...int) *sysfs.Host {
		for _, id := range ids {
			f(&h.CPUs[id])
		}
		return h
	}
	offline := func(c *sysfs.CPU) { c.Online, c.Core, c.Node = false, -1, -1 }
	isolated := func(c *sysfs.CPU) { c.Isolated = true }
	forbidden := func(c *sysfs.CPU) { c.Allowed = false }
	for _, c := range []struct {
		name string
		host *sysfs.Host
		want Want
		node int
		cpus []int // nil: an error
		says []string
	}{
		// 2 nodes of 4 cores: node 0 has 0-3 and 8-11, node 1 4-7 and 12-15.
		{"siblings together", machine(2, 4), Want{CPUs: 4}, 0, []int{0, 8, 1, 9}, nil},
		{"an odd number", machine(2, 4), Want{CPUs: 3}, 0, []int{0, 8, 1}, nil},
		{"the odd thread from a core that is broken already", machine(2, 4), Want{CPUs: 3, Taken: sysfs.IDList{0}}, 0, []int{1, 9, 8}, nil},
		{"the fuller node", machine(2, 4), Want{CPUs: 2, Taken: sysfs.IDList{4, 12}}, 1, []int{5, 13}, nil},
		{"a node", machine(2, 4), Want{CPUs: 2, Node: node(1)}, 1, []int{4, 12}, nil},
		{"all of one", machine(2, 2), Want{CPUs: 4, Taken: sysfs.IDList{0}}, 1, []int{2, 6, 3, 7}, nil},
		{"offline sibling", change(machine(1, 2), offline, 2), Want{CPUs: 1}, 0, []int{0}, nil},
		{"isolated", change(machine(1, 2), isolated, 0, 2), Want{CPUs: 2}, 0, []int{1, 3}, nil},
		{"forbidden", change(machine(1, 2), forbidden, 0), Want{CPUs: 3}, 0, []int{1, 3, 2}, nil},
		{"whole core before odd threads", change(machine(1, 2), forbidden, 0), Want{CPUs: 2}, 0, []int{1, 3}, nil},
		{"no node is told", &sysfs.Host{CPUs: []sysfs.CPU{{ID: 0, Online: true, Allowed: true, Core: -1, Node: -1}, {ID: 1, Online: true, Allowed: true, Core: -1, Node: -1}}},
			Want{CPUs: 2}, -1, []int{0, 1}, nil},
		{"never across nodes", machine(2, 4), Want{CPUs: 9}, 0, nil, []string{"node 0 has 8", "node 1 has 8", "want fewer"}},
		{"why not", change(change(machine(1, 4), isolated, 1, 2), forbidden, 3), Want{CPUs: 6, Taken: sysfs.IDList{0}}, 0, nil,
			[]string{"node 0 has 4", "1 not allowed", "2 isolated", "1 dedicated"}},
		{"no such node", machine(1, 2), Want{CPUs: 1, Node: node(7)}, 0, nil, []string{"no node has any", "4 of another node"}},
		{"none", machine(1, 1), Want{}, 0, nil, []string{"at least one"}},
		{"no machine", &sysfs.Host{}, Want{CPUs: 1}, 0, nil, []string{"no node has any"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Choose(c.host, c.want)
			if c.cpus == nil {
				if err == nil {
					t.Fatalf("chose %v", got)
				}
				for _, s := range c.says {
					if !strings.Contains(err.Error(), s) {
						t.Errorf("%q doesn't say %q", err, s)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Node != c.node || !slices.Equal(got.CPUs, c.cpus) {
				t.Errorf("chose %v of node %d, want %v of %d", got.CPUs, got.Node, c.cpus, c.node)
			}
		})
	}
}

// Whatever is asked of whatever machine: as many as wanted, none twice, all of one node, and none that may not be had.
func TestChooseAlwaysKeepsRules(t *testing.T) {
	for nodes := 1; nodes <= 3; nodes++ {
		for cores := 1; cores <= 4; cores++ {
			for count := 1; count <= 2*cores; count++ {
				for taken := range 2 * nodes * cores {
					host, w := machine(nodes, cores), Want{CPUs: count, Taken: sysfs.IDList{taken}}
					got, err := Choose(host, w)
					if err != nil {
						if nodes > 1 || count < 2*cores {
							t.Errorf("%d nodes of %d cores, %d wanted: %v", nodes, cores, count, err)
						}
						continue
					}
					if err := keepsRules(host, w, got); err != nil {
						t.Errorf("%d nodes of %d cores, %d wanted, %d taken: %v: %v", nodes, cores, count, taken, got, err)
					}
				}
			}
		}
	}
}

func keepsRules(host *sysfs.Host, w Want, got *Chosen) error {
	if len(got.CPUs) != w.CPUs || len(slices.Compact(got.List())) != w.CPUs {
		return fmt.Errorf("not %d", w.CPUs)
	}
	partial := 0
	for _, id := range got.CPUs {
		if host.CPUs[id].Node != got.Node || w.Taken.Has(id) {
			return fmt.Errorf("CPU %d", id)
		}
		sibling := (id + len(host.CPUs)/2) % len(host.CPUs)
		if !slices.Contains(got.CPUs, sibling) && !w.Taken.Has(sibling) {
			partial++
		}
	}
	if partial > 1 {
		return fmt.Errorf("%d cores are shared with others", partial)
	}
	return nil
}
