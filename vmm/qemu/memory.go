package qemu

import (
	"strconv"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
)

// memoryPlan says what RAM the shim is to make.
func (b *builder) memoryPlan() (plan.Memory, error) {
	size, err := spec.ParseQuantity(b.spec.GetMemory().GetSize())
	if err != nil {
		return plan.Memory{}, spec.FieldErrors{{Field: "memory.size", Message: err.Error()}}
	}
	page, err := spec.HugePageSize(b.spec.GetMemory())
	if err != nil {
		return plan.Memory{}, spec.FieldErrors{{Field: "memory.hugePages.pageSize", Message: err.Error()}}
	}
	if !b.lazy() {
		parts := b.ramParts(size)
		bindings, err := vmm.Bindings(parts)
		return plan.Memory{Size: size, Path: b.req.MemoryPath, PageSize: page, Bindings: bindings, Near: b.near(parts)}, err
	}
	switch {
	case page != 0:
		b.faults = append(b.faults, spec.FieldError{Field: "memory.hugePages", Message: "an image can't be mapped as huge pages: restore it eagerly", Advice: "without --lazy"})
	case !b.details.ReadOnlyMemory:
		b.faults.Add("vmm", "QEMU %s at %s can't map an image read-only: restore it eagerly%s", b.req.Info.Version, b.req.Info.Binary, contract.Advice("without --lazy"))
	}
	return plan.Memory{Size: size}, nil
}

func (b *builder) lazy() bool { return b.req.Image != nil && b.req.Image.Lazy }

// memoryArgs backs RAM with the file that the shim opened.
//
// A lazily restored VM maps its image privately from a descriptor without the
// right to write, so that nothing, and no balloon, can change the image. The
// balloon stays where it is, as the device state would not load without it; when
// the guest hands back pages QEMU then finds that it can't punch a hole and says
// so, a line for each range, and the page stays: free page reporting hands back
// 2 MiB or more at a time, so a Linux guest of 1 GiB made 37 such lines in its
// first ten seconds on QEMU 10.0. Turning the feature off instead is no way, as a
// guest that has taken it up fails to load.
func (b *builder) memoryArgs(m plan.Memory) {
	fd := b.file(plan.File{Kind: plan.FileMemory, Write: !b.lazy()})
	parts := b.ramParts(m.Size)
	for _, part := range parts {
		backend := options{
			"qom-type": "memory-backend-file",
			"id":       ramID(part),
			"size":     part.Size,
			"mem-path": "/proc/self/fd/" + fd,
			"share":    !b.lazy(),
			"dump":     false,
		}
		if b.lazy() {
			backend["readonly"] = true
			backend["rom"] = "off"
		}
		if part.Offset != 0 {
			backend["offset"] = part.Offset
		}
		b.bind(part, backend)
		b.object(backend)
	}
	b.arg("-m", keyValues("", "size", formatBytes(m.Size)))
	b.numaArgs(parts)
}

// formatBytes has the suffix B because -m takes a bare number for MiB.
func formatBytes(n uint64) string { return strconv.FormatUint(n, 10) + "B" }
