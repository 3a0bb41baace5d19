package sysfs

import (
	"encoding/json"
	"regexp"
	"slices"
	"testing"
)

// checkHost finds whatever must never be in a Host, whichever files it is from.
func checkHost(t testing.TB, h *Host) {
	t.Helper()
	c := &checker{TB: t}
	c.cpus = c.ids("cpus", len(h.CPUs), func(i int) int { return h.CPUs[i].ID })
	c.nodes = c.ids("nodes", len(h.Nodes), func(i int) int { return h.Nodes[i].ID })
	packages := c.ids("packages", len(h.Packages), func(i int) int { return h.Packages[i].ID })
	dies := c.ids("dies", len(h.Dies), func(i int) int { return h.Dies[i].ID })
	clusters := c.ids("clusters", len(h.Clusters), func(i int) int { return h.Clusters[i].ID })
	cores := c.ids("cores", len(h.Cores), func(i int) int { return h.Cores[i].ID })
	c.ids("caches", len(h.Caches), func(i int) int { return h.Caches[i].ID })

	for _, p := range h.Packages {
		c.members("package", p.CPUs, func(cpu CPU) int { return cpu.Package }, p.ID, h)
		c.refs("nodes", p.Nodes, c.nodes)
	}
	for _, d := range h.Dies {
		c.members("die", d.CPUs, func(cpu CPU) int { return cpu.Die }, d.ID, h)
		c.ref("package", d.Package, packages)
	}
	for _, cl := range h.Clusters {
		c.members("cluster", cl.CPUs, func(cpu CPU) int { return cpu.Cluster }, cl.ID, h)
		c.ref("package", cl.Package, packages)
		c.ref("die", cl.Die, dies)
	}
	for _, core := range h.Cores {
		c.members("core", core.CPUs, func(cpu CPU) int { return cpu.Core }, core.ID, h)
		c.ref("package", core.Package, packages)
		c.ref("die", core.Die, dies)
		c.ref("cluster", core.Cluster, clusters)
		for thread, id := range core.CPUs {
			cpu := h.byID(id)
			if cpu.Thread != thread || cpu.Package != core.Package || cpu.Die != core.Die || cpu.Cluster != core.Cluster {
				t.Errorf("CPU %+v does not agree with its core %+v", *cpu, core)
			}
		}
	}
	online := 0
	for _, n := range h.Nodes {
		c.members("node", n.CPUs, func(cpu CPU) int { return cpu.Node }, n.ID, h)
		if n.Online {
			online++
		}
	}
	for _, n := range h.Nodes {
		if len(n.Distances) != 0 && len(n.Distances) != online {
			t.Errorf("node %d has %d distances, and %d nodes are online", n.ID, len(n.Distances), online)
		}
	}
	for _, cpu := range h.CPUs {
		c.ref("core", cpu.Core, cores)
		c.ref("package", cpu.Package, packages)
		c.ref("die", cpu.Die, dies)
		c.ref("cluster", cpu.Cluster, clusters)
		c.ref("node", cpu.Node, c.nodes)
		if !cpu.Online && (cpu.Core >= 0 || cpu.Package >= 0) {
			t.Errorf("CPU %d is offline and in core %d of package %d", cpu.ID, cpu.Core, cpu.Package)
		}
	}
	c.caches(h)
	for _, list := range []IDList{h.CPUSets.Present, h.CPUSets.Online, h.CPUSets.Offline, h.CPUSets.AllowedCPUs} {
		c.refs("CPU set", list, c.cpus)
	}
	c.refs("nodes that are allowed", h.CPUSets.AllowedNodes, c.nodes)
	c.json(h)
}

type checker struct {
	testing.TB
	cpus, nodes map[int]bool
}

// ids are sorted, and none is listed twice.
func (c *checker) ids(what string, n int, id func(int) int) map[int]bool {
	known := map[int]bool{}
	for i := range n {
		if id(i) < 0 || (i > 0 && id(i) <= id(i-1)) {
			c.Errorf("%s: id %d is negative or not after %d", what, id(i), id(max(0, i-1)))
		}
		known[id(i)] = true
	}
	return known
}

func (c *checker) ref(what string, id int, known map[int]bool) {
	if id != -1 && !known[id] {
		c.Errorf("there is no %s %d", what, id)
	}
}

func (c *checker) refs(what string, list IDList, known map[int]bool) {
	for _, id := range list {
		if !known[id] {
			c.Errorf("%s: there is no %d", what, id)
		}
	}
	if list == nil || !slices.IsSorted(list) {
		c.Errorf("%s: %v is nil or not sorted", what, list)
	}
}

// members are just those CPUs that say so themselves.
func (c *checker) members(what string, list IDList, of func(CPU) int, id int, h *Host) {
	var want IDList
	for _, cpu := range h.CPUs {
		if of(cpu) == id {
			want = append(want, cpu.ID)
		}
	}
	if !slices.Equal(list, want) {
		c.Errorf("%s %d has %v, and these say that they are in it: %v", what, id, list, want)
	}
	c.refs(what, list, c.cpus)
}

// caches of one kind don't overlap.
func (c *checker) caches(h *Host) {
	seen := map[cacheKey]map[int]bool{}
	for _, cache := range h.Caches {
		kind := cacheKey{cache.Level, cache.Type}
		if seen[kind] == nil {
			seen[kind] = map[int]bool{}
		}
		c.refs("cache", cache.CPUs, c.cpus)
		for _, id := range cache.CPUs {
			if seen[kind][id] {
				c.Errorf("CPU %d is in two caches %+v", id, kind)
			}
			seen[kind][id] = true
		}
		if len(cache.CPUs) == 0 {
			c.Errorf("cache %+v is nobody's", cache)
		}
	}
}

var nullArray = regexp.MustCompile(`"(\w+)":null`)

// json has no null: not for an array, and what is unknown is left out.
func (c *checker) json(h *Host) {
	content, err := json.Marshal(h)
	if err != nil {
		c.Fatal(err)
	}
	for _, match := range nullArray.FindAllString(string(content), -1) {
		c.Errorf("JSON has %s", match)
	}
}
