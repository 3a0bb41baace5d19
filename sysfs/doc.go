// Package sysfs reads what a Linux machine is made of from the files of /sys
// and /proc, and from nothing else: processors, caches, NUMA nodes, huge pages,
// PCI, IOMMU groups, mediated and USB devices, and what the hypervisors' modules
// say. It knows nothing of virtual machines.
//
// Any root may be given, so that a tree from another machine is read just the
// same. A missing or senseless file costs the fact that it holds, and leaves a
// Note if it should have been there; it never costs the rest. Nothing that a
// tree holds can make Read hang, follow a link out of its root, or take memory
// without bound.
package sysfs
