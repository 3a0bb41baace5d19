package draw

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vmlet/vmlet/sysfs"
)

// kind is what an object is. Of objects with the same CPUs the lesser kind is
// the outer one.
type kind int

const (
	kindMachine kind = 0
	kindPackage kind = 10
	kindDie     kind = 20
	kindNode    kind = 30
	kindCluster kind = 40
	kindCache   kind = 50 // and up: see cacheKind
	kindCore    kind = 100
)

// maxLevel is the highest cache level that is distinguished.
const maxLevel = 15

// cacheKind orders caches from the last level to the first; a level's data
// before its instructions.
func cacheKind(c *sysfs.Cache) kind {
	k := kindCache + kind(3*(maxLevel-min(max(c.Level, 1), maxLevel)))
	switch c.Type {
	case "data":
		k++
	case "instruction":
		k += 2
	}
	return k
}

// object is a part of the machine that holds CPUs, and what is attached to it.
type object struct {
	kind kind
	id   int
	// cpus are the online ones.
	cpus sysfs.IDList
	// own are those of its CPUs that no child holds, and offline ones that are
	// known to belong here.
	own      []*sysfs.CPU
	children []*object

	node  *sysfs.Node
	cache *sysfs.Cache
	core  *sysfs.Core
	// placed: it is in the tree, or in model.memory.
	placed bool
	// capacity of a core; 0 where all of the machine's are equal.
	capacity int

	devices []device
}

// model is a Host made ready for drawing.
type model struct {
	host *sysfs.Host
	root *object
	// cpus by id.
	cpus map[int]*sysfs.CPU
	// nodes by id; those without CPUs, and those that can't be nested, are in
	// memory too.
	nodes  map[int]*object
	memory []*object
	// crossing is how many objects lie across others, or in a core, and can't be nested.
	crossing int
	// unlisted is how many PCI devices are not worth a line.
	unlisted int
}

func newModel(h *sysfs.Host) *model {
	m := &model{host: h, cpus: map[int]*sysfs.CPU{}, nodes: map[int]*object{}}
	m.root = &object{kind: kindMachine}
	for i := range h.CPUs {
		c := &h.CPUs[i]
		m.cpus[c.ID] = c
	}
	for id, c := range m.cpus {
		if c.Online {
			m.root.cpus = append(m.root.cpus, id)
		}
	}
	slices.Sort(m.root.cpus)
	objects := m.objects()
	m.nest(objects)
	m.placeOffline(objects)
	m.hang()
	return m
}

// objects lists all that may hold others, outer ones first.
func (m *model) objects() []*object {
	var all []*object
	add := func(o object, cpus sysfs.IDList) *object {
		o.cpus = m.online(cpus)
		all = append(all, &o)
		return &o
	}
	h := m.host
	for _, p := range h.Packages {
		add(object{kind: kindPackage, id: p.ID}, p.CPUs)
	}
	for _, d := range h.Dies {
		add(object{kind: kindDie, id: d.ID}, d.CPUs)
	}
	for _, c := range h.Clusters {
		add(object{kind: kindCluster, id: c.ID}, c.CPUs)
	}
	for i := range h.Nodes {
		n := &h.Nodes[i]
		o := add(object{kind: kindNode, id: n.ID, node: n}, n.CPUs)
		m.nodes[n.ID] = o
		if o.placed = len(o.cpus) == 0; o.placed {
			m.memory = append(m.memory, o)
		}
	}
	for i := range h.Caches {
		c := &h.Caches[i]
		add(object{kind: cacheKind(c), id: c.ID, cache: c}, c.CPUs)
	}
	differ := capacitiesDiffer(h)
	for i := range h.Cores {
		c := &h.Cores[i]
		o := add(object{kind: kindCore, id: c.ID, core: c}, c.CPUs)
		if differ && len(o.cpus) > 0 {
			o.capacity = m.cpus[o.cpus[0]].Capacity
		}
	}
	slices.SortStableFunc(all, func(a, b *object) int {
		return cmp.Or(cmp.Compare(len(b.cpus), len(a.cpus)), cmp.Compare(a.kind, b.kind), cmp.Compare(a.id, b.id))
	})
	return all
}

func capacitiesDiffer(h *sysfs.Host) bool {
	return slices.ContainsFunc(h.CPUs, func(c sysfs.CPU) bool { return c.Online && c.Capacity != h.CPUs[0].Capacity })
}

// online returns those of the CPUs that the machine has and that are online,
// sorted. Only they are nested: the kernel forgets the core, the caches and the
// package of an offline CPU, but not always its node, which would then seem to
// hold more than its package does.
func (m *model) online(cpus sysfs.IDList) sysfs.IDList {
	var online sysfs.IDList
	for _, id := range cpus {
		if c := m.cpus[id]; c != nil && c.Online {
			online = append(online, id)
		}
	}
	return union(online)
}

// placeOffline puts offline CPUs into their node or package, if these are known.
func (m *model) placeOffline(objects []*object) {
	packages := map[int]*object{}
	for _, o := range objects {
		if o.kind == kindPackage && o.placed {
			packages[o.id] = o
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.cpus)) {
		c := m.cpus[id]
		if c.Online {
			continue
		}
		o := m.root
		if p := packages[c.Package]; p != nil {
			o = p
		}
		if n := m.nodes[c.Node]; n != nil {
			o = n
		}
		o.own = append(o.own, c)
	}
}

// nest puts every object into the smallest one that holds all of its CPUs. It
// takes time in the sum of their sizes: holder says for each CPU which object
// holds it so far, and larger objects come first.
func (m *model) nest(objects []*object) {
	holder := map[int]*object{}
	for _, id := range m.root.cpus {
		holder[id] = m.root
	}
	for _, o := range objects {
		if len(o.cpus) == 0 {
			continue
		}
		parent := holder[o.cpus[0]]
		if !o.fits(parent) || slices.ContainsFunc(o.cpus, func(id int) bool { return holder[id] != parent }) {
			m.cross(o)
			continue
		}
		if tellsNothing(o, parent) {
			continue
		}
		parent.children = append(parent.children, o)
		o.placed = true
		for _, id := range o.cpus {
			holder[id] = o
		}
	}
	for _, id := range m.root.cpus {
		o := holder[id]
		o.own = append(o.own, m.cpus[id])
	}
	slices.SortStableFunc(m.memory, func(a, b *object) int { return cmp.Compare(a.id, b.id) })
	m.root.tidy()
}

// fits: a core holds nothing but CPUs, and a node no other node, though both may
// have the same CPUs (numa=fake=).
func (o *object) fits(in *object) bool {
	return in.kind != kindCore && (o.kind != kindNode || in.kind != kindNode)
}

// cross keeps what can't be nested: a node beside the packages, as it has memory
// and devices; what else there is counts only.
func (m *model) cross(o *object) {
	if o.kind != kindNode {
		m.crossing++
		return
	}
	o.placed = true
	m.memory = append(m.memory, o)
}

// tellsNothing: the only die of a package, and a cluster that is a die, or a
// core of its own, are how the kernel fills in what a machine doesn't have.
func tellsNothing(o, parent *object) bool {
	same := len(o.cpus) == len(parent.cpus)
	switch o.kind {
	case kindDie:
		return same && parent.kind == kindPackage
	case kindCluster:
		return same && parent.kind < kindCache && parent.kind != kindMachine
	}
	return false
}

// tidy orders what was nested by size, and drops clusters of a single core.
func (o *object) tidy() {
	for i, c := range o.children {
		for c.kind == kindCluster && c.single() {
			c = c.children[0]
		}
		o.children[i] = c
		c.tidy()
	}
	slices.SortStableFunc(o.children, func(a, b *object) int {
		if a.kind == b.kind && a.kind <= kindNode {
			return cmp.Compare(a.id, b.id)
		}
		return cmp.Compare(a.cpus[0], b.cpus[0])
	})
}

// single: there is one child with all of the CPUs, down to a single core.
func (o *object) single() bool {
	for o.kind != kindCore {
		if len(o.children) != 1 || len(o.own) > 0 {
			return false
		}
		o = o.children[0]
	}
	return true
}

// cores counts the cores in an object.
func (o *object) cores() int {
	if o.kind == kindCore {
		return 1
	}
	n := 0
	for _, c := range o.children {
		n += c.cores()
	}
	return n
}

// insert keeps a list of numbers sorted and each of them once.
func insert(list []int, n int) []int {
	i, found := slices.BinarySearch(list, n)
	if found {
		return list
	}
	return slices.Insert(list, i, n)
}
