package hibernation

import (
	"time"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// Decision is what becomes of a VM's hibernation and of its resume.
type Decision struct {
	// Status and Resume are the VM's, as they are to be.
	Status *kubevirtv1.HibernationStatus
	Resume *kubevirtv1.ResumeStatus
	// First is done before the VM's status says so, Then afterwards.
	First, Then []action.Action
	Events      []action.Event
	// Again is when to look again for the hibernation's sake; zero: never.
	Again time.Time
	// Starts: a VM that sleeps, and has no instance, is started now. Retry is when a resume that failed is tried
	// again; zero: at no time.
	Starts bool
	Retry  time.Time
}

// record adds an event.
func (d *Decision) record(e action.Event) { d.Events = append(d.Events, e) }

// Asleep: the guest is saved, or has suspended itself.
func (d *Decision) Asleep() bool {
	return d.Status != nil && d.Status.Phase == kubevirtv1.HibernationCompleted
}

// has: the image is recorded.
func (d *Decision) has(image *kubevirtv1.SavedImage) bool {
	return d.Status != nil && d.Status.Image != nil && d.Status.Image.ID == image.ID
}

// direct tells an instance how its guest is to end; empty: it goes on.
func direct(own *kubevirtv1.VirtualMachineInstance, stop string, volumes []kubevirtv1.UtilityVolume) action.DirectInstance {
	return action.DirectInstance{Instance: own, Stop: stop, Volumes: volumes}
}

// saveRetry is how long the next attempt waits after so many failures: 10 s, twice as long after
// each, five minutes at most.
func saveRetry(failures int32) time.Duration {
	return min(run.RetryBase<<min(max(failures-1, 0), 10), run.RetryMost)
}
