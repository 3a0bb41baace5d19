// Package sysfstest makes up machines for tests: it writes what Linux would show
// of them in /sys and /proc, from a short description, into a temporary folder.
//
//	tree := sysfstest.Machine{Packages: 2, Cores: 4, Threads: 2}.Write(t)
//	host := sysfs.Read(sysfs.Roots{Sys: tree.Sys, Proc: tree.Proc, Dev: tree.Dev})
//
// What a description has no word for is written with the methods of Tree: any
// file, link or folder, over what is there or beside it. Tools that take a root
// (`lscpu -s`) read the same tree from Tree.Root.
package sysfstest

import (
	"os"
	"testing"
)

// Machine describes a machine. Each field may be left out.
type Machine struct {
	// Arch is Go's name of the architecture: "amd64" (if empty), "arm64",
	// "s390x", "ppc64le". It decides the format of /proc/cpuinfo.
	Arch string

	// Packages, Dies in each package, Clusters in each die, Cores in each cluster
	// and Threads of each core. 0 counts as 1; without Dies or Clusters the files
	// that tell of them aren't written.
	Packages, Dies, Clusters, Cores, Threads int
	// Adjacent: a core's threads have numbers side by side, as on arm64, POWER and
	// s390x. Else all cores' first threads come first, as on most x86.
	Adjacent bool
	// IDs are the CPUs' numbers, in the order that they would have from 0; nil:
	// from 0. For sparse ones.
	IDs []int
	// PackageIDs are the kernel's numbers of the packages; nil: from 0. All -1 on
	// many an arm64 VM.
	PackageIDs []int
	// CoreIDsPerDie: the kernel's numbers of cores start again in each die, and
	// else only in each package.
	CoreIDsPerDie bool

	// Offline, Isolated and NoHZFull are CPUs by number.
	Offline, Isolated, NoHZFull []int
	// Possible are the CPUs that may come, more than there are; nil: those there are.
	Possible []int
	// Allowed are the CPUs and AllowedNodes the nodes of /proc/self/status; nil: all.
	Allowed, AllowedNodes []int

	// Performance and Efficiency are the CPUs of a hybrid processor by kind.
	Performance, Efficiency []int
	// Capacity by CPU (arm64); one that isn't there has no such file.
	Capacity map[int]int
	// MaxFrequency by CPU, in Hz.
	MaxFrequency map[int]uint64

	// Caches that each CPU has; nil: L1d, L1i and L2 of each core, L3 of each die.
	// To have none give a list without elements.
	Caches []Cache

	// Nodes; nil: one, with all CPUs and Memory. See SplitNodes.
	Nodes []Node
	// PossibleNodes are those that may come; nil: those there are.
	PossibleNodes []int
	// NoNodes: there is no /sys/devices/system/node.
	NoNodes bool

	// Memory in bytes; 0: the nodes' together, or 8 GiB.
	Memory uint64
	// Swap in bytes.
	Swap uint64
	// HugePages of the machine; nil: the nodes' together.
	HugePages []Pool
}

// Scope is who shares a cache.
type Scope int

// The CPUs of one core, cluster, die or package, or one CPU alone.
const (
	PerCore Scope = iota
	PerThread
	PerCluster
	PerDie
	PerPackage
)

// Cache is a kind of cache.
type Cache struct {
	Level int
	// Type as the kernel writes it: "Data", "Instruction", "Unified".
	Type string
	// SizeKB in KiB; 0: no file tells.
	SizeKB int
	// Ways of associativity; the line is 64 bytes and the sets follow. 0: no
	// files tell.
	Ways  int
	Scope Scope
	// CPUs that have such a cache; nil: all.
	CPUs []int
}

// Node is a NUMA node.
type Node struct {
	ID   int
	CPUs []int
	// Memory and Free in bytes.
	Memory, Free uint64
	// Distances to the nodes in their order; nil: 10 to itself, 20 to others.
	Distances []int
	HugePages []Pool
}

// Pool is one of huge pages.
type Pool struct {
	// SizeKB of a page, in KiB.
	SizeKB                         uint64
	Total, Free, Reserved, Surplus uint64
}

// Large is a machine of 2 packages with 64 cores of 2 threads, 256 CPUs, in 8
// nodes of 64 GiB, with caches, frequencies and huge pages.
func Large() Machine {
	m := Machine{Packages: 2, Dies: 1, Clusters: 8, Cores: 8, Threads: 2}
	m.Caches = []Cache{
		{Level: 1, Type: "Data", SizeKB: 32, Ways: 8},
		{Level: 1, Type: "Instruction", SizeKB: 32, Ways: 8},
		{Level: 2, Type: "Unified", SizeKB: 1024, Ways: 8},
		{Level: 3, Type: "Unified", SizeKB: 32768, Ways: 16, Scope: PerCluster},
	}
	m.MaxFrequency = map[int]uint64{}
	for id := range m.count() {
		m.MaxFrequency[id] = 3_700_000_000
	}
	m = m.SplitNodes(8, 64<<30)
	for i := range m.Nodes {
		m.Nodes[i].HugePages = []Pool{{SizeKB: 2048, Total: 8192, Free: 4096 + uint64(i)}, {SizeKB: 1 << 20, Total: 16, Free: 8}}
	}
	return m
}

// SplitNodes returns the machine with that many nodes, each with as many of the
// CPUs, in the order of the cores, and as much memory: nodes of one package are
// 12 from each other, others 32.
func (m Machine) SplitNodes(nodes int, memory uint64) Machine {
	cpus := m.cpus()
	m.Nodes = make([]Node, nodes)
	home := make([]int, nodes)
	for i, cpu := range cpus {
		n := i * nodes / len(cpus)
		m.Nodes[n].CPUs = append(m.Nodes[n].CPUs, cpu.id)
		home[n] = cpu.place[PerPackage]
	}
	for n := range m.Nodes {
		m.Nodes[n].ID, m.Nodes[n].Memory, m.Nodes[n].Free = n, memory, memory*3/4
		for other := range m.Nodes {
			distance := 32
			switch {
			case other == n:
				distance = 10
			case home[other] == home[n]:
				distance = 12
			}
			m.Nodes[n].Distances = append(m.Nodes[n].Distances, distance)
		}
	}
	return m
}

// Write writes the machine's tree into a folder that goes when the test ends.
func (m Machine) Write(t testing.TB) *Tree {
	t.Helper()
	return m.WriteTo(t, tempDir(t))
}

// tempDir is in memory where there is a tmpfs: thousands of small files take
// tens of times longer on a disk.
func tempDir(t testing.TB) string {
	folder, err := os.MkdirTemp("/dev/shm", "sysfstest-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// WriteTo writes it into a folder of the caller's.
func (m Machine) WriteTo(t testing.TB, folder string) *Tree {
	t.Helper()
	tree := Empty(t, folder)
	w := writer{Tree: tree, m: m.complete(), cpus: m.cpus()}
	w.sets()
	for _, cpu := range w.cpus {
		w.cpu(cpu)
	}
	w.nodes()
	w.memory()
	w.proc()
	return tree
}
