package hibernation

import (
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// Decide says what becomes of a VM's hibernation, and whether a VM that sleeps starts.
func Decide(v View) Decision {
	d := Decision{Status: v.VM.Status.HibernationStatus.DeepCopy(), Resume: v.VM.Status.ResumeStatus.DeepCopy()}
	if !v.VM.DeletionTimestamp.IsZero() {
		return d
	}
	follow(v, &d)
	warn(v, &d)
	if d.Asleep() && v.stage() == run.Absent {
		resume(v, &d)
	}
	return d
}

// follow has the hibernation follow from what the instance has come to.
func follow(v View, d *Decision) {
	own, image := v.Own, savedImage(v.Own)
	switch s := d.Status; {
	case image != nil && !d.has(image):
		complete(v, d, image)
	case suspended(own) && !d.Asleep():
		complete(v, d, nil)
	case s == nil && own != nil && v.saves():
		beginSave(v, d)
	case s == nil && own != nil && v.stage() == run.Alive && own.Spec.StopStrategy != "":
		d.Then = append(d.Then, direct(own, "", own.Spec.UtilityVolumes))
	case s == nil:
		nothingToSave(v, d)
	case d.Asleep():
		sleep(v, d)
	default:
		save(v, d)
	}
	if d.Status == nil && d.Resume != nil && d.Resume.Phase == kubevirtv1.ResumeCompleted && v.VM.Status.HibernationStatus == nil {
		d.Resume.Phase = kubevirtv1.ResumeCleaned
	}
}
