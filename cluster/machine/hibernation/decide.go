package hibernation

import (
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// Decide says what becomes of the hibernation by what the instance has come to.
func Decide(v View) Decision {
	d := Decision{Status: v.VM.Status.HibernationStatus.DeepCopy(), Resume: v.VM.Status.ResumeStatus.DeepCopy()}
	if v.VM.DeletionTimestamp.IsZero() {
		d.decide(v)
		warn(v, &d)
	}
	if v.VM.DeletionTimestamp.IsZero() && d.Asleep() && v.stage() == run.Absent {
		resume(v, &d)
	}
	return d
}

func (d *Decision) decide(v View) {
	own := v.Own
	image := savedImage(own)
	switch s := d.Status; {
	case image != nil && !d.records(image):
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
