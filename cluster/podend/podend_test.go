package podend

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var at = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

// exit is how a kubelet writes the end of a container that the runtime has seen, or a change of it.
func exit(change ...func(*corev1.ContainerStatus)) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: "compute", ContainerID: "containerd://1"}
	s.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", ContainerID: s.ContainerID, FinishedAt: at}
	for _, f := range change {
		f(&s)
	}
	return s
}

func code(n int32) func(*corev1.ContainerStatus) {
	return func(s *corev1.ContainerStatus) { s.State.Terminated.ExitCode = n }
}

func reason(r string) func(*corev1.ContainerStatus) {
	return func(s *corev1.ContainerStatus) { s.State.Terminated.Reason = r }
}

func finished(t metav1.Time) func(*corev1.ContainerStatus) {
	return func(s *corev1.ContainerStatus) { s.State.Terminated.FinishedAt = t }
}

func unidentified(s *corev1.ContainerStatus) { s.ContainerID, s.State.Terminated.ContainerID = "", "" }

// before is a container that waits after a run that ended so.
func before(s corev1.ContainerStatus) corev1.ContainerStatus {
	s.LastTerminationState, s.State = s.State, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	return s
}

// after is a container that was started anew after a run that ended so.
func after(s, last corev1.ContainerStatus) corev1.ContainerStatus {
	s.RestartCount, s.LastTerminationState = 1, last.State
	return s
}

// TestEnded: a container has ended if its runtime saw that, and not if the kubelet or the runtime
// says that it doesn't know.
func TestEnded(t *testing.T) {
	lost := []func(*corev1.ContainerStatus){reason("ContainerStatusUnknown"), code(137), finished(metav1.Time{})}
	for name, c := range map[string]struct {
		status         corev1.ContainerStatus
		container, pod bool
	}{
		"failed":                         {exit(), true, true},
		"shut down":                      {exit(code(0), reason("Completed")), true, true},
		"killed":                         {exit(code(137)), true, true},
		"out of memory":                  {exit(code(137), reason("OOMKilled")), true, true},
		"could not be started":           {exit(code(128), reason("StartError")), true, true},
		"known by the state's id":        {exit(func(s *corev1.ContainerStatus) { s.ContainerID = "" }), true, true},
		"the kubelet doesn't know":       {exit(lost...), false, false},
		"the same with a time":           {exit(reason("ContainerStatusUnknown")), false, false},
		"no time":                        {exit(finished(metav1.Time{})), false, false},
		"the runtime's time is 0":        {exit(finished(metav1.Unix(0, 0))), false, false},
		"containerd doesn't know":        {exit(code(255), reason("Unknown")), false, false},
		"containerd doesn't, other code": {exit(code(137), reason("Unknown")), false, false},
		"CRI-O doesn't know":             {exit(code(255)), false, false},
		"no container, none before":      {exit(append(lost, unidentified)...), false, true},
		"no container, though one ran": {func() corev1.ContainerStatus {
			s := exit(append(lost, unidentified)...)
			s.LastTerminationState = s.State
			return s
		}(), false, false},
		"nobody knows of the run before":      {after(exit(), exit(lost...)), false, false},
		"the runtime doesn't, either":         {after(exit(), exit(code(255))), false, false},
		"the run before has ended, too":       {after(exit(), exit()), true, true},
		"the run before was forgotten":        {after(exit(), corev1.ContainerStatus{}), false, true},
		"the last run is unknown, not before": {after(exit(lost...), exit()), false, false},
		"runs":                                {corev1.ContainerStatus{ContainerID: "1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}, false, false},
		"never started":                       {corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}, false, true},
		"waits, and has ended before":         {before(exit()), false, true},
		"waits, and nobody knows of before":   {before(exit(lost...)), false, false},
		"created":                             {corev1.ContainerStatus{ContainerID: "1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}, false, false},
	} {
		if got := Container(&c.status) != nil; got != c.container {
			t.Errorf("%s: the container has ended: %v, want %v", name, got, c.container)
		}
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{c.status}}}
		if got := Pod(p); got != c.pod {
			t.Errorf("%s: the pod has ended: %v, want %v", name, got, c.pod)
		}
		if p.Status.Phase = corev1.PodRunning; Pod(p) {
			t.Errorf("%s: a pod that runs has ended", name)
		}
	}
}

// TestAllContainers: a pod has ended when all kinds of its containers have, and its phase says so.
func TestAllContainers(t *testing.T) {
	runs := []corev1.ContainerStatus{{ContainerID: "1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	for name, s := range map[string]corev1.PodStatus{
		"container":           {ContainerStatuses: runs},
		"init container":      {InitContainerStatuses: runs},
		"ephemeral container": {EphemeralContainerStatuses: runs},
	} {
		if s.Phase = corev1.PodSucceeded; Pod(&corev1.Pod{Status: s}) {
			t.Errorf("a pod has ended whose %s runs", name)
		}
	}
	for phase, want := range map[corev1.PodPhase]bool{"": false, corev1.PodPending: false, corev1.PodRunning: false, corev1.PodUnknown: false, corev1.PodSucceeded: true, corev1.PodFailed: true} {
		if got := Pod(&corev1.Pod{Status: corev1.PodStatus{Phase: phase}}); got != want {
			t.Errorf("a pod in phase %q has ended: %v, want %v", phase, got, want)
		}
	}
}
