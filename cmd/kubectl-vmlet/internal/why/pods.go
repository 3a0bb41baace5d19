package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/contract"
)

// harmless are reasons for which containers wait that pass by themselves.
var harmless = []string{"ContainerCreating", "PodInitializing"}

func fromPods(o *Objects) (all []Finding) {
	for _, p := range slices.Concat(o.Pods, o.Attachments) {
		of := "pod " + p.Name
		if !p.DeletionTimestamp.IsZero() {
			all = append(all, Finding{Since: p.DeletionTimestamp.Time, Of: of, Reason: "Terminating", Message: "the guest is being shut down, or its node is not heard", Do: advice("Terminating")})
		}
		if c := unscheduled(&p); c != nil {
			f := Finding{Since: c.LastTransitionTime.Time, Of: of, Reason: cmp.Or(c.Reason, string(c.Type)), Message: c.Message, Do: advice(c.Reason)}
			if lacks := lacking(&p, o.Nodes); len(o.Nodes) > 0 && len(lacks) > 0 {
				f.Do = strings.Join(lacks, "; ")
			}
			all = append(all, f)
		}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			all = append(all, fromContainer(of, p.CreationTimestamp.Time, c)...)
		}
	}
	return all
}

// unscheduled is the condition of a pod that no node takes; nil: one has.
func unscheduled(p *corev1.Pod) *corev1.PodCondition {
	for i, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// fromContainer finds a container that can't start, or has failed.
func fromContainer(of string, created time.Time, c corev1.ContainerStatus) []Finding {
	f := Finding{Since: created, Of: of + ", container " + c.Name}
	switch waiting, ended := c.State.Waiting, c.State.Terminated; {
	case waiting != nil && !slices.Contains(harmless, waiting.Reason):
		f.Reason, f.Message = waiting.Reason, waiting.Message
	case ended != nil && ended.ExitCode != 0:
		f.Since, f.Reason = ended.FinishedAt.Time, cmp.Or(ended.Reason, "Error")
		f.Message = strings.TrimSpace(fmt.Sprintf("exit code %d %s", ended.ExitCode, contract.ReadEnding(ended.Message).Message))
	default:
		return nil
	}
	if f.Do = advice(f.Reason); f.Do == "" && c.Name == contract.ContainerCompute {
		f.Do = "kubectl logs " + strings.TrimPrefix(of, "pod ") + " -c " + contract.ContainerCompute
	}
	return []Finding{f}
}

// fromNode finds a node that is not ready.
func fromNode(o *Objects) []Finding {
	if o.Node == nil {
		return nil
	}
	for _, c := range o.Node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return []Finding{{
				Since: c.LastTransitionTime.Time, Of: "node " + o.Node.Name, Reason: cmp.Or(c.Reason, "NotReady"),
				Message: cmp.Or(c.Message, "it is not ready"), Do: advice("NodeUnresponsive"),
			}}
		}
	}
	return nil
}

// warnings are the events that are warnings, each said once.
func warnings(o *Objects) (all []Finding) {
	for _, e := range o.Events {
		if e.Type != corev1.EventTypeWarning {
			continue
		}
		f := Finding{Since: lastSeen(e), Of: word(e.InvolvedObject.Kind) + " " + e.InvolvedObject.Name, Reason: e.Reason, Message: e.Message}
		if n := times(e); n > 1 {
			f.Reason += fmt.Sprintf(" (%d times)", n)
		}
		all = append(all, f)
	}
	all = newestFirst(all)
	return all[:min(len(all), maxWarnings)]
}

// word is what a page calls objects of a kind.
func word(kind string) string {
	switch kind {
	case "VirtualMachine":
		return "VM"
	case "VirtualMachineInstance":
		return "instance"
	case "PersistentVolumeClaim":
		return "claim"
	}
	return strings.ToLower(kind)
}

// lastSeen is when an event last happened, by whichever of its fields its writer filled.
func lastSeen(e corev1.Event) time.Time {
	last := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.EventTime.Time, e.FirstTimestamp.Time, e.LastTimestamp.Time} {
		if t.After(last) {
			last = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}

func times(e corev1.Event) int32 {
	if e.Series != nil {
		return max(e.Count, e.Series.Count)
	}
	return e.Count
}
