package capabilities

import (
	"cmp"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/protobuf/proto"
	"maps"
	"slices"
)

// hostCapabilities is what of a machine's files belongs in the document:
// nothing that changes by itself.
func hostCapabilities(h *sysfs.Host, roots sysfs.Roots) *capabilitiesv1.HostCapabilities {
	out := &capabilitiesv1.HostCapabilities{
		KernelRelease:        h.Kernel.Release,
		Cpu:                  hostCPU(h),
		MemoryBytes:          h.Memory.Total,
		SwapBytes:            h.Memory.SwapTotal,
		NumaNodes:            numaNodes(h),
		HugePages:            hugePages(h.HugePages),
		Nested:               h.Virtualization.Nested,
		TransparentHugePages: h.Memory.TransparentHugePages,
		Clocksource:          h.Kernel.Clocksource,
		Vulnerabilities:      maps.Clone(h.Processor.Vulnerabilities),
		IommuGroups:          iommuGroups(h),
		Vfio:                 &capabilitiesv1.Vfio{Modules: slices.Clone(h.VFIO.Modules), NoIommu: h.VFIO.NoIOMMU},
	}
	if ksm := h.Memory.KSM; ksm != nil {
		out.KsmEnabled = proto.Bool(ksm.Run == 1)
	} else if withoutKSM(h, roots) {
		out.KsmEnabled = proto.Bool(false)
	}
	if limit := h.Kernel.RealtimeRuntime; limit != nil {
		out.Realtime = proto.Bool(*limit == -1)
	}
	return out
}

func hostCPU(h *sysfs.Host) *capabilitiesv1.HostCpu {
	out := &capabilitiesv1.HostCpu{
		Vendor:    vendor(h.Processor.Vendor),
		ModelName: h.Processor.ModelName,
		Family:    unsigned(h.Processor.Family),
		Model:     unsigned(h.Processor.Model),
		Stepping:  unsigned(h.Processor.Stepping),
		Microcode: h.Processor.Microcode,
		Online:    h.CPUSets.Online.String(),
		Isolated:  h.CPUSets.Isolated.String(),
	}
	packages, cores := map[int]bool{}, map[int]bool{}
	for _, c := range h.CPUs {
		if !c.Online {
			continue
		}
		out.Threads++
		if c.Package >= 0 {
			packages[c.Package] = true
		}
		if c.Core >= 0 {
			cores[c.Core] = true
		}
	}
	out.Packages, out.Cores = uint32(len(packages)), uint32(len(cores))
	return out
}

// vendor is libvirt's word for a processor's maker; what it has none for stays
// as the processor says it. 0x41 is ARM's implementer code (MIDR_EL1, Arm ARM).
func vendor(said string) string {
	if said == "0x41" {
		return "ARM"
	}
	return cmp.Or(vmm.VendorName(said), said)
}

// numaNodes are those online: another's memory and CPUs can't be had.
func numaNodes(h *sysfs.Host) []*capabilitiesv1.NumaNode {
	var out []*capabilitiesv1.NumaNode
	for _, n := range h.Nodes {
		if !n.Online {
			continue
		}
		node := &capabilitiesv1.NumaNode{
			Id: unsigned(n.ID), MemoryBytes: n.Memory, Cpus: n.CPUs.String(), HugePages: hugePages(n.HugePages),
		}
		for _, d := range n.Distances {
			node.Distances = append(node.Distances, unsigned(d))
		}
		out = append(out, node)
	}
	return out
}

func hugePages(pools []sysfs.HugePages) []*capabilitiesv1.HugePagePool {
	var out []*capabilitiesv1.HugePagePool
	for _, p := range pools {
		out = append(out, &capabilitiesv1.HugePagePool{PageSizeBytes: p.PageSize, Total: p.Total})
	}
	return out
}

func iommuGroups(h *sysfs.Host) *capabilitiesv1.IommuGroups {
	out := &capabilitiesv1.IommuGroups{Total: uint32(len(h.IOMMUGroups))}
	for _, g := range h.IOMMUGroups {
		if g.Viable {
			out.Viable++
		}
	}
	return out
}

// unsigned takes what the files call -1 for nothing.
func unsigned(n int) uint32 { return uint32(min(max(n, 0), 1<<32-1)) }
