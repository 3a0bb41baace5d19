package instance

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/lifecycle"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
)

// round is one call of Reconcile.
type round struct {
	*Reconciler
	o   *view.View
	key types.NamespacedName
	// failures are what is tried again later though the round went on; again is when, if
	// sooner than that.
	failures []error
	again    time.Duration
}

// lookAgain has the instance be looked at again after a time, if it is not 0.
func (t *round) lookAgain(in time.Duration) {
	if in > 0 && (t.again == 0 || in < t.again) {
		t.again = in
	}
}

func (t *round) record(e action.Event) {
	t.Events.Eventf(t.o.Instance, nil, e.Kind, e.Reason, e.Reason, "%s", condition.Sentence(e.Message))
}

// change patches the instance's metadata, if nobody has changed the instance meanwhile.
func (t *round) change(ctx context.Context, change func(*kubevirtv1.VirtualMachineInstance)) error {
	changed := t.o.Instance.DeepCopy()
	change(changed)
	patch := client.MergeFromWithOptions(t.o.Instance, client.MergeFromWithOptimisticLock{})
	if err := t.Client.Patch(ctx, changed, patch); err != nil {
		return err
	}
	t.stored(changed)
	return nil
}

// stored has the round, and those that follow, go on from what was written.
func (t *round) stored(changed *kubevirtv1.VirtualMachineInstance) {
	t.Observer.Note(t.o.Instance, changed)
	t.o.Instance = changed
}

func (t *round) protect(ctx context.Context) error {
	return t.change(ctx, func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Finalizers = append(vmi.Finalizers, contract.FinalizerInstance)
	})
}

func (t *round) finalize(ctx context.Context) error {
	vmi := t.o.Instance
	err := t.change(ctx, func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Finalizers = slices.DeleteFunc(vmi.Finalizers, func(f string) bool { return f == contract.FinalizerInstance })
	})
	switch {
	case apierrors.IsNotFound(err): // another round did it
		t.o.Instance = nil
		return nil
	case err == nil:
		t.Events.Eventf(vmi, nil, corev1.EventTypeNormal, eventGone, eventGone, "the VM has ended, and its pod was let go")
	}
	return err
}

func (t *round) label(ctx context.Context) error {
	return t.change(ctx, func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Labels = lifecycle.OrEmpty(vmi.Labels)
		vmi.Labels[contract.LabelNodeName] = vmi.Status.NodeName
	})
}

func (t *round) write(ctx context.Context, a action.WriteStatus) error {
	changed := t.o.Instance.DeepCopy()
	changed.Status = *a.Status
	if err := t.Client.Status().Update(ctx, changed); err != nil {
		return err
	}
	t.stored(changed)
	for _, e := range a.Events {
		t.record(e)
	}
	return nil
}

// seeCall looks what has become of the call that saves the VM.
func (t *round) seeCall() {
	t.o.Call = nil
	if call, has := t.Saves.Look(t.key); has {
		t.o.Call = &call
	}
}

// Reasons of events of what is done, as KubeVirt spells them.
const (
	eventCreated = "SuccessfulCreate"
	eventDeleted = "SuccessfulDelete"
	eventGone    = "Deleted"
)
