package instance

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/observe"
	"github.com/vmlet/vmlet/cluster/launcher"
)

// attacher makes and deletes the pods through which volumes are attached.
type attacher struct{ *round }

// attach makes the pod through which a claim is attached. What speaks against it is in the next
// status.
func (t attacher) attach(ctx context.Context, claim string) error {
	// The cache has not all of a pod that the other one is to be like.
	vm, err := observe.Get(ctx, t.Observer.Live, client.ObjectKeyFromObject(t.o.Pod), new(corev1.Pod))
	if err != nil {
		return err
	}
	if vm == nil || vm.UID != t.o.Pod.UID {
		t.o.Pod.Gone = true
		return nil
	}
	made, err := t.Attachment(t.o.Instance, vm, claim)
	if err != nil {
		return err
	}
	err = t.Client.Create(ctx, made)
	if apierrors.IsAlreadyExists(err) {
		return t.adoptAttachment(ctx, made)
	}
	if err != nil {
		t.failures = append(t.failures, err)
		t.o.Refused = &condition.Fault{Reason: condition.ReasonAttachFailed, Message: "claim " + claim + " can't be attached to the VM's pod: the API server refused pod " + made.Name + ": " + launcher.Refused(err, made).Error()}
		return nil
	}
	t.o.Attachments = append(t.o.Attachments, made)
	t.record(action.Event{Kind: corev1.EventTypeNormal, Reason: eventCreated, Message: "made pod " + made.Name + " to attach claim " + claim})
	return nil
}

// adoptAttachment takes up a pod that another round has made, or waits for one to go that an
// earlier try has left.
func (t attacher) adoptAttachment(ctx context.Context, made *corev1.Pod) error {
	found, err := observe.Get(ctx, t.Observer.Live, client.ObjectKeyFromObject(made), new(corev1.Pod))
	if err != nil {
		return err
	}
	if found != nil && metav1.IsControlledBy(found, t.o.Pod) {
		t.o.Attachments = append(t.o.Attachments, found)
		return nil
	}
	t.again = refusedAgain
	t.o.Refused = &condition.Fault{Reason: condition.ReasonAttachFailed, Message: "pod " + made.Name + ", through which a claim would be attached, is there and is not the VM's: delete it"}
	return nil
}

func (t attacher) detach(ctx context.Context, p *corev1.Pod) error {
	uid := p.UID
	err := t.Client.Delete(ctx, p.DeepCopy(), client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return err
	}
	t.o.Attachments = slices.DeleteFunc(t.o.Attachments, func(q *corev1.Pod) bool { return q.UID == uid })
	if err == nil {
		t.record(action.Event{Kind: corev1.EventTypeNormal, Reason: eventDeleted, Message: "deleted pod " + p.Name})
	}
	return nil
}
