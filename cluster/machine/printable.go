package machine

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/imports"
	"github.com/vmlet/vmlet/cluster/machine/hibernation"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// printable returns what the VM does now: the first that applies, in KubeVirt's
// order, except that an instance without any news is Unknown, whatever it was
// before.
func printable(d decision) kubevirtv1.PrintableStatus {
	up := d.own() // what its status says is of now
	if d.stage != run.Alive {
		up = nil
	}
	switch h := hibernation.Printable(d.view(), d.hibernation, d.starts, d.step == stop); {
	case !d.vm.DeletionTimestamp.IsZero():
		return kubevirtv1.StatusTerminating
	case h != "":
		return h
	case d.stage == run.Deleting, d.stage == run.Alive && d.step == stop:
		return kubevirtv1.StatusStopping
	case up != nil && activity(up) != "":
		return activity(up)
	case lacks(up, "FailedPvcNotFound"):
		return kubevirtv1.StatusErrorPVCNotFound
	case slices.ContainsFunc(d.volumes, func(v volume) bool { return v.dataVolume != nil && v.dataVolume.fault != "" }):
		return kubevirtv1.StatusDataVolumeError
	case unschedulable(up):
		return kubevirtv1.StatusErrorUnschedulable
	case slices.ContainsFunc(d.volumes, d.provisioning):
		return kubevirtv1.StatusProvisioning
	case d.wanted() && slices.ContainsFunc(d.volumes, volume.binding):
		return kubevirtv1.StatusWaitingForVolumeBinding
	case lacks(up, "ErrImagePull"):
		return kubevirtv1.StatusErrImagePull
	case lacks(up, "ImagePullBackOff"):
		return kubevirtv1.StatusImagePullBackOff
	case d.backingOff():
		return kubevirtv1.StatusCrashLoopBackOff
	case d.wanted() || d.restarts():
		return kubevirtv1.StatusStarting
	}
	return kubevirtv1.StatusStopped
}

// activity is the printable status of an instance that has been started, or empty.
func activity(up *kubevirtv1.VirtualMachineInstance) kubevirtv1.PrintableStatus {
	paused := kubevirtv1.FindCondition(up.Status.Conditions, kubevirtv1.ConditionPaused)
	migration := up.Status.MigrationState
	switch {
	case up.Status.Phase == kubevirtv1.PhaseUnknown:
		return kubevirtv1.StatusUnknown
	case migration != nil && !migration.Completed && !migration.Failed:
		return kubevirtv1.StatusMigrating
	case paused != nil && paused.Status == metav1.ConditionTrue:
		return kubevirtv1.StatusPaused
	case up.Status.Phase == kubevirtv1.PhaseRunning:
		return kubevirtv1.StatusRunning
	}
	return ""
}

// lacks: the instance can't be started for that reason.
func lacks(up *kubevirtv1.VirtualMachineInstance, reason string) bool {
	if up == nil {
		return false
	}
	c := kubevirtv1.FindCondition(up.Status.Conditions, kubevirtv1.ConditionSynchronized)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason
}

func unschedulable(up *kubevirtv1.VirtualMachineInstance) bool {
	if up == nil {
		return false
	}
	c := kubevirtv1.FindCondition(up.Status.Conditions, string(corev1.PodScheduled))
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
}

// provisioning: the claim is being filled, or about to be.
func (d decision) provisioning(v volume) bool {
	if v.missing() {
		can := d.imports || imports.Fault(v.template, d.vm.Namespace) == ""
		return can && d.failed == nil && (immediate(d.vm) || d.step == start)
	}
	if v.dataVolume != nil && v.dataVolume.waits() && !d.wanted() {
		return false
	}
	return !v.ready() && !(v.binding() && d.wanted())
}

// restarts: the instance has ended, and another one follows.
func (d decision) restarts() bool {
	return d.stage.Ended() && d.step == stop &&
		(d.strategy == kubevirtv1.RunStrategyAlways || slices.ContainsFunc(d.requests, func(q kubevirtv1.StateChangeRequest) bool {
			return q.Action == kubevirtv1.StateChangeStart
		}))
}

// backingOff: the next start waits as the last one failed.
func (d decision) backingOff() bool {
	return !d.retry.IsZero() || !d.hibernation.Retry.IsZero() || d.restarts() && d.failures != nil
}
