package machine

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// View is what the rules of hibernation go by. They change nothing in it.
type View struct {
	// VM has what its instancetype and preference say. Own is its instance; nil if it has none.
	VM  *kubevirtv1.VirtualMachine
	Own *kubevirtv1.VirtualMachineInstance
	// Strategy is the VM's run strategy, Request the first one that has not been carried out, or empty.
	Strategy kubevirtv1.RunStrategy
	Request  kubevirtv1.StateChange
	Memory
	// Cluster is the cluster's configuration.
	Cluster configuration.Configuration
	// Defaults fills what an instance leaves unset, as admission does.
	Defaults func(*kubevirtv1.VirtualMachineInstance)
	Now      time.Time
}

// Memory is what is known of a guest's memory on claims, and of disks that go with it.
type Memory struct {
	// Claims are those for the guest's memory that the VM has or may have, by name; one that is
	// not there is not in it. Users are who else uses one of that name.
	Claims map[string]*corev1.PersistentVolumeClaim
	Users  map[string]string
	// Saved is the VM's spec that the saved guest was started with; nil if it is not known.
	Saved *kubevirtv1.VirtualMachineSpec
	// Spoiled is why the guest must not go on from its image, as to who has used its disks; nil: nothing
	// is known against it.
	Spoiled *action.Failure
	// Claimless: the API server has just refused to make a claim for the VM's memory, for want of
	// quota, say. The guest starts without one.
	Claimless bool
}

// stage is where the VM's instance is in its life.
func (v View) stage() run.Stage { return run.StageOf(v.Own) }
