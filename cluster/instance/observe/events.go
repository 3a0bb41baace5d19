package observe

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/trouble"
	"github.com/vmlet/vmlet/cluster/instance/view"
)

const (
	// eventsOfUID selects events by the object that they are of.
	eventsOfUID = "involvedObject.uid"
	// maxEvents is more than a pod has that does not start.
	maxEvents = 100
)

// podTrouble reads the events of a pod that does not start. If they can't be read, it is what
// was known before: clusters may keep events apart from all else.
func (r *Observer) podTrouble(ctx context.Context, v *view.View) *condition.Fault {
	f, err := r.eventsOf(ctx, v.Pod.Pod, "the VM's pod does not start: ")
	if err == nil {
		return f
	}
	if was := condition.Find(v.Instance.Status.Conditions, kubevirtv1.ConditionSynchronized); was != nil {
		return &condition.Fault{Reason: was.Reason, Message: was.Message}
	}
	return nil
}

// eventsOf is why a pod does not start, by its events; nil: they don't say.
func (r *Observer) eventsOf(ctx context.Context, p *corev1.Pod, begin string) (*condition.Fault, error) {
	var events corev1.EventList
	err := r.Live.List(ctx, &events, client.InNamespace(p.Namespace), client.Limit(maxEvents),
		client.MatchingFields{eventsOfUID: string(p.UID)})
	if err != nil {
		log.FromContext(ctx).Info("failed to read the events of a pod that does not start", "pod", p.Name, "error", err.Error())
		return nil, err
	}
	return trouble.OfEvents(events.Items, p.Namespace, begin), nil
}
