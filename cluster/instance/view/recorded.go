package view

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// IsFinal reports whether an instance in that phase has ended.
func IsFinal(p kubevirtv1.Phase) bool {
	return p == kubevirtv1.PhaseSucceeded || p == kubevirtv1.PhaseFailed
}

// Entered says whether the instance has been in a phase.
func Entered(s *kubevirtv1.VirtualMachineInstanceStatus, phase kubevirtv1.Phase) bool {
	return slices.ContainsFunc(s.PhaseTransitionTimestamps, func(t kubevirtv1.PhaseTransition) bool { return t.Phase == phase })
}

// Active is the pod that the status names: its UID, and its node as far as it was known.
func Active(s *kubevirtv1.VirtualMachineInstanceStatus) (uid types.UID, node string, has bool) {
	for _, uid := range slices.Sorted(maps.Keys(s.ActivePods)) {
		return uid, s.ActivePods[uid], true
	}
	return "", "", false
}

// SupersededIn: the instance's status names another pod, which was there before this one and may
// have vanished: a controller made this one from a cache that was behind. An instance has one pod
// in its life.
func SupersededIn(vmi *kubevirtv1.VirtualMachineInstance, p *corev1.Pod) bool {
	uid, _, had := Active(&vmi.Status)
	return had && uid != p.UID && UIDOf(p.Labels) == vmi.UID
}
