package place

import (
	"fmt"
	"os"
	"time"

	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
)

// Choice is what is decided about a run before anything is made.
type Choice struct {
	ID    string                     // of the VM, a UUID
	Spec  *specv1.VirtualMachineSpec // complete
	VMM   vmm.VMM
	Plan  *plan.Plan
	Lease *Lease
	Start time.Time
	// Device is the hypervisor's, if the VMM opens it as its user; empty: it doesn't.
	Device string
}

// PlannedMemory is the guest's memory in bytes; the specification is valid.
func PlannedMemory(s *specv1.VirtualMachineSpec) uint64 {
	size, _ := spec.ParseQuantity(s.GetMemory().GetSize())
	return size
}

// RunID tells one run of a VM from another.
func RunID(id string, start time.Time) string { return fmt.Sprintf("%s-%d", id, start.UnixNano()) }

// Descriptors numbers what goes with a plan: the taps, in the order of the
// networks, and then cloud-init's seed. -1: it has none.
func Descriptors(s *specv1.VirtualMachineSpec) (taps []int, seed int) {
	taps = make([]int, len(s.GetNetworks()))
	next := 0
	for i, n := range s.GetNetworks() {
		taps[i] = -1
		if n.GetTap() != nil {
			taps[i] = next
			next++
		}
	}
	if s.GetCloudInit() == nil {
		return taps, -1
	}
	return taps, next
}

// BlockDevices are those paths of disks and backing files that are block devices on
// this node now.
func BlockDevices(s *specv1.VirtualMachineSpec) []string {
	return DiskPaths(s, func(path string) bool {
		st, err := os.Stat(path)
		return err == nil && st.Mode().Type()&os.ModeDevice != 0
	})
}

// DiskPaths are those paths of disks and backing files that are wanted.
func DiskPaths(s *specv1.VirtualMachineSpec, wanted func(path string) bool) (paths []string) {
	add := func(path string) {
		if wanted(path) {
			paths = append(paths, path)
		}
	}
	for _, d := range s.GetDisks() {
		add(d.GetPath())
		for _, b := range d.GetBackingFiles() {
			add(b.GetPath())
		}
	}
	return paths
}
