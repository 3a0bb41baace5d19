// Package podend says what a pod's status proves: which of its containers have ended. Anyone who
// starts a second writer of a disk asks here whether the first one can still run. It must not know
// what the containers are for. Start reading at Container.
package podend

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/contract"
)

const (
	// reasonLost is the kubelet's for a container that the runtime says nothing about, or
	// doesn't know (pkg/kubelet of Kubernetes). The container may run.
	reasonLost = "ContainerStatusUnknown"
	// reasonUnknown and codeUnknown are containerd's, and the code CRI-O's, for a container whose
	// process they could not find or ask when they were started again. They set a time, too.
	reasonUnknown = "Unknown"
	codeUnknown   = contract.ExitUnknown
)

// Container is how a container has ended, by the word of a runtime that saw it end; nil: it may
// run. The kubelet also writes that a container has terminated where nobody knows. And whatever the
// pod's restart policy, it starts a container again when its runtime doesn't know whether it
// runs: how the last run ended says nothing of the one before.
func Container(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if s.RestartCount > 0 && !seen(s.LastTerminationState.Terminated) {
		return nil
	}
	return lastRun(s)
}

// lastRun is how a container's last run has ended.
func lastRun(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if t := s.State.Terminated; seen(t) && (s.ContainerID != "" || t.ContainerID != "") {
		return t
	}
	return nil
}

// seen: the runtime saw the end. The kubelet passes a time that the runtime does not have on as 1970.
func seen(t *corev1.ContainerStateTerminated) bool {
	return t != nil && t.FinishedAt.Unix() > 0 && t.ExitCode != codeUnknown && t.Reason != reasonLost && t.Reason != reasonUnknown
}

// Pod reports whether all containers of a pod have ended for good, or never ran. The phase alone is
// also written by others than the kubelet, who don't know.
func Pod(p *corev1.Pod) bool {
	if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
		return false
	}
	s := p.Status
	return !slices.ContainsFunc(slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses), mayRun)
}

// mayRun of a container in a pod that has ended. One that waited when the pod ended has not run, or
// ended before. Of a run before the last one the kubelet forgets in time how it ended.
func mayRun(s corev1.ContainerStatus) bool {
	last := s.LastTerminationState.Terminated
	switch {
	case s.State.Running != nil:
		return true
	case s.ContainerID == "" && last == nil && (s.State.Terminated == nil || s.State.Terminated.ContainerID == ""):
		return false // nothing was ever started
	case s.State.Terminated == nil:
		return !seen(last)
	}
	return last != nil && !seen(last) || lastRun(&s) == nil
}
