package podvm

import (
	"fmt"
	"math"
	"slices"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/spec"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// room is the size of the pod's volume, in bytes.
func (h *placement) room() (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(h.dir, &fs); err != nil {
		return 0, fmt.Errorf("the pod's volume %s: statfs: %w", contract.VolumeName, err)
	}
	return fs.Blocks * uint64(fs.Bsize), nil
}

// checkRoom refuses memory that the volume can't hold: the VMM would die in the
// middle of the guest's life.
func (h *placement) checkRoom(memory uint64, lazy bool) error {
	room, err := h.room()
	if err == nil && memory > room && !lazy {
		return fault.Invalid("memory.size", "%s is more than the %s of the pod's volume %s: raise its sizeLimit, or the pod's memory limit, which bounds it",
			spec.FormatQuantity(memory), spec.ShortQuantity(room), contract.VolumeName)
	}
	return err
}

// refusesLazy: RAM that is mapped privately from an image is in the VMM's snapshot. A
// VMM that writes that to its own folder, in the pod's volume, takes as much memory
// again, and the kernel would kill it for that.
func (h *placement) refusesLazy(c *place.Choice) error {
	own := func(f plan.File) bool { return f.Kind == plan.FileFolder }
	if c.Plan.Restore == nil || !c.Plan.Restore.Lazy || !slices.ContainsFunc(c.Plan.Files, own) {
		return nil
	}
	room, err := h.room()
	if err != nil {
		return err
	}
	need, limit := c.Plan.Memory.Size, uint64(math.MaxUint64)
	if set, has := h.container.Resources.Limits[corev1.ResourceMemory]; has {
		limit = uint64(max(0, set.Value()))
	}
	if usual, known := h.runner.node.PodLimit(c.Spec, c.Spec.GetHypervisor(), c.VMM.Name()); known {
		need += usual
	}
	if need <= limit && c.Plan.Memory.Size <= room {
		return nil
	}
	return contract.Errorf("it was restored lazily, and %s writes its memory to the pod's volume %s before it is in the image, for which the container's memory limit would have to be %s: raise it, and the volume's sizeLimit if it has one, or restore it eagerly%s",
		c.VMM.Name(), contract.VolumeName, spec.FormatQuantity(need), contract.Advice("without --lazy"))
}
