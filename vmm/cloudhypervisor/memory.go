package cloudhypervisor

import (
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// memory backs RAM, as one zone, with the file that the shim opened. One that is
// shared and has a name stays out of snapshots.
//
// A lazily restored VM maps its image privately: the VMM opens it for reading only,
// so that nothing, and no balloon, can change it. When the guest hands back pages
// the VMM then can't punch a hole, says so and goes on (v53; v51 ended over it).
func (b *builder) memory() plan.Memory {
	size, err := spec.ParseQuantity(b.spec.GetMemory().GetSize())
	if err != nil {
		b.faults.Add("memory.size", "%v", err)
	}
	page, err := spec.HugePageSize(b.spec.GetMemory())
	if err != nil {
		b.faults.Add("memory.hugePages.pageSize", "%v", err)
	}
	file := plan.File{Kind: plan.FileMemory, Write: !b.lazy()}
	zone := chapi.MemoryZone{ID: RAM, Size: size, Shared: !b.lazy(), HugePages: page != 0, HugePageSize: page}
	memory := plan.Memory{Size: size}
	parts, err := vmm.MemoryParts(b.spec.GetNuma(), size)
	b.faults.Take(err)
	b.numa(parts)
	if b.lazy() {
		if page != 0 {
			b.faults = append(b.faults, spec.FieldError{Field: "memory.hugePages", Message: "an image can't be mapped as huge pages: restore it eagerly", Advice: "without --lazy"})
		}
		zone.File = b.granted(file)
	} else {
		memory.Path, memory.PageSize = b.req.MemoryPath, page
		memory.Bindings, err = vmm.Bindings(parts)
		b.faults.Take(err)
		zone.File = b.own(file)
	}
	b.config.Memory = &chapi.Memory{Zones: []chapi.MemoryZone{zone}}
	return memory
}

func (b *builder) lazy() bool { return b.req.Image != nil && b.req.Image.Lazy }
