package hibernation

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/cluster/validation"
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

// stamp is now, as objects keep it.
func (v View) stamp() *metav1.Time {
	now := metav1.NewTime(v.Now).Rfc3339Copy()
	return &now
}

// mode is how the VM hibernates.
func (v View) mode() string { return v.Cluster.Hibernation.ModeOf(v.VM.Spec.HibernateStrategy) }

// startStrategy is what a start does with the guest's saved memory: the VM's choice, else the
// cluster's.
func (v View) startStrategy() kubevirtv1.StartStrategy {
	if s := v.VM.Spec.StartStrategy; s != nil && *s != "" {
		if strategy, known := configuration.StartStrategy(*s); known {
			return strategy
		}
		return kubevirtv1.StartRestore // nothing is discarded by a misspelling
	}
	if v.Cluster.Hibernation.StartStrategy == kubevirtv1.StartBoot {
		return kubevirtv1.StartBoot
	}
	return kubevirtv1.StartRestore
}

func (v View) evictionStrategy(instance *kubevirtv1.VirtualMachineInstance) kubevirtv1.EvictionStrategy {
	if s := instance.Spec.EvictionStrategy; s != nil {
		return *s
	}
	return v.Cluster.EvictionStrategy
}

// warningTimeout is how long a hibernation takes before an event warns of it; 0: no event does.
func (v View) warningTimeout() time.Duration {
	seconds := v.Cluster.Hibernation.WarningTimeoutSeconds
	if s := v.VM.Spec.HibernateStrategy; s != nil && s.WarningTimeoutSeconds != nil {
		seconds = *s.WarningTimeoutSeconds
	}
	return time.Duration(seconds) * time.Second
}

// unsaveable says why an instance's guest can't hibernate, and what to do; empty: it can, as far as
// is known, or need not.
func (v View) unsaveable(instance *kubevirtv1.VirtualMachineInstance) string {
	return validation.Unsaveable(instance, v.mode(), v.Cluster)
}

// evacuates: the instance is to leave its node, by being saved. One that can't be saved is evicted
// as if it had no strategy.
func (v View) evacuates() bool {
	own := v.Own
	switch v.Strategy {
	case kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyRerunOnFailure, kubevirtv1.RunStrategyManual, kubevirtv1.RunStrategyOnce:
		return own.Status.EvacuationNodeName != "" && v.evictionStrategy(own) == kubevirtv1.EvictionHibernate && v.unsaveable(own) == ""
	}
	return false
}

// saves: the guest is to be saved, as soon as that can be.
func (v View) saves() bool {
	return v.Strategy == kubevirtv1.RunStrategyHibernate ||
		v.evacuates() && v.Request != kubevirtv1.StateChangeStop
}
