package hibernation

import (
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// Printable is the printable status of a VM that hibernates or goes on, or empty. One whose guest goes on as it
// could not be saved is what its guest is. starts is the run that begins now, or nil;
// stops: its instance is deleted.
func Printable(v View, d Decision, starts *run.Run, stops bool) kubevirtv1.PrintableStatus {
	s, own := d.Status, v.Own
	switch {
	case s == nil:
		return ""
	case !d.Asleep():
		if s.Phase == kubevirtv1.HibernationFailed || v.stage() != run.Alive || stops || !v.saves() {
			return ""
		}
		return kubevirtv1.StatusHibernating
	case Ended(own):
		return kubevirtv1.StatusHibernating // it still has its pod
	case s.Image == nil && (starts != nil || own != nil):
		return ""
	case starts != nil && starts.Instance.Spec.RestoreFrom == nil:
		return ""
	case starts != nil, own != nil && v.stage() == run.Alive && !stops:
		return kubevirtv1.StatusResuming
	case own != nil && !v.stage().Ended():
		return ""
	}
	return kubevirtv1.StatusHibernated
}
