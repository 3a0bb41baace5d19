package instance

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/claimuse"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/lifecycle"
	"github.com/vmlet/vmlet/cluster/instance/observe"
	"github.com/vmlet/vmlet/cluster/instance/trouble"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/contract"
)

// podWriter makes, changes and deletes pods of VMs.
type podWriter struct{ *round }

// createAlone makes the instance's pod while no other is made whose use of a claim excludes this one's, and asks the API
// server for others' pods, which the cache may not have yet: of two of them the one that was made later sees the other.
func (t podWriter) createAlone(ctx context.Context) error {
	vmi := t.o.Instance
	done, alone := t.Making.Begin(vmi.Namespace, claimuse.OfInstance(vmi))
	if !alone {
		t.again = soon
		t.o.Fault = &condition.Fault{Reason: condition.ReasonClaimInUse, Message: "another pod with a claim of this VM's is being made at this moment: it is looked at again"}
		return nil
	}
	defer done()
	var err error
	if t.o.Users, err = t.Observer.ClaimUsers(ctx, vmi); err != nil {
		return err
	}
	for i := range t.o.Users {
		u := &t.o.Users[i]
		if u.Started {
			continue
		}
		if u.Pod, err = t.Observer.OwnPod(ctx, u.Instance); err != nil {
			return err
		}
		u.Started = u.Pod != nil
	}
	imports, err := t.Observer.Imports(ctx, vmi)
	if err != nil {
		return err
	}
	t.o.Users = append(t.o.Users, imports...)
	if claims.InUse(vmi, t.o.Users) != nil {
		return nil // the next status says so
	}
	return t.create(ctx)
}

// create makes the instance's pod. What speaks against it becomes the round's fault, which
// the next status says.
func (t podWriter) create(ctx context.Context) error {
	vmi := t.o.Instance
	made, err := t.Pod(vmi.DeepCopy(), t.o.Claims)
	if err != nil {
		t.o.Fault, t.again = &condition.Fault{Reason: condition.ReasonFailedCreate, Message: err.Error()}, refusedAgain
		return nil
	}
	lifecycle.SetLabels(made, lifecycle.SharedLabels(vmi))
	if found, err := t.findOthers(ctx, made); err != nil || found {
		return err
	}
	switch err := t.Client.Create(ctx, made); {
	case apierrors.IsAlreadyExists(err):
		return t.adopt(ctx)
	case err != nil:
		t.failures = append(t.failures, err)
		t.o.Fault = &condition.Fault{Reason: condition.ReasonFailedCreate, Message: trouble.Refusal(launcher.Refused(err, made), vmi.Namespace)}
		return nil
	}
	t.o.Pod = &view.Pod{Pod: made, Host: view.Host{Node: view.Node{Exists: true}}}
	t.record(action.Event{Kind: corev1.EventTypeNormal, Reason: eventCreated, Message: "made pod " + made.Name})
	return t.checkOwner(ctx)
}

// findOthers asks the API server, as the cache may not have them, for the pods of earlier
// instances of this name that have not ended.
func (t podWriter) findOthers(ctx context.Context, made *corev1.Pod) (bool, error) {
	var pods corev1.PodList
	if err := t.Observer.Live.List(ctx, &pods, client.InNamespace(made.Namespace), client.MatchingLabels{
		contract.LabelApp: contract.LabelAppLauncher, contract.LabelInstanceID: made.Labels[contract.LabelInstanceID],
	}); err != nil {
		return false, fmt.Errorf("looking for pods of earlier instances: %w", err)
	}
	known := len(t.o.Others)
	for i := range pods.Items {
		p := &view.Pod{Pod: &pods.Items[i]}
		same := func(q *view.Pod) bool { return q.UID == p.UID }
		if view.InstanceOf(p.Pod) != t.o.Instance.Name || view.UIDOf(p.Labels) == t.o.Instance.UID || slices.ContainsFunc(t.o.Others, same) {
			continue
		}
		if err := t.Observer.Look(ctx, t.o, p); err != nil {
			return false, err
		}
		t.o.Others = append(t.o.Others, p)
	}
	return len(t.o.Others) > known, nil
}

// adopt takes up a pod that another round has made.
func (t podWriter) adopt(ctx context.Context) error {
	found, err := t.Observer.OwnPod(ctx, t.o.Instance)
	if err != nil {
		return err
	}
	if found == nil {
		t.again = refusedAgain
		t.o.Fault = &condition.Fault{Reason: condition.ReasonFailedCreate, Message: "pod " + t.Observer.PodName(t.o.Instance) + " is there and is not this instance's: delete it"}
		return nil
	}
	t.o.Pod = &view.Pod{Pod: found}
	return t.Observer.Look(ctx, t.o, t.o.Pod)
}

// checkOwner sees whether the instance went while its pod was made, as nobody would look after
// the pod, or has ended or had a pod before, as the cache did not know.
func (t podWriter) checkOwner(ctx context.Context) error {
	vmi, made := t.o.Instance, t.o.Pod
	now, err := observe.Get(ctx, t.Observer.Live, client.ObjectKeyFromObject(vmi), new(kubevirtv1.VirtualMachineInstance))
	switch {
	case err != nil:
		return err
	case now == nil || now.UID != vmi.UID:
		t.o.Instance, t.o.Others, t.o.Pod = nil, append(t.o.Others, made), nil
	case view.SupersededIn(now, made.Pod):
		t.o.Instance, t.o.Others, t.o.Pod = now, append(t.o.Others, made), t.Observer.Vanished(now)
		if t.o.Pod != nil {
			return t.Observer.Look(ctx, t.o, t.o.Pod)
		}
	case view.IsFinal(now.Status.Phase):
		t.o.Instance = now
	}
	return nil
}

// remove deletes a pod, and reads it again: what the cache had may be older than the node
// that it was bound to meanwhile.
func (t podWriter) remove(ctx context.Context, p *view.Pod, options ...client.DeleteOption) error {
	uid := p.UID
	err := t.Client.Delete(ctx, p.DeepCopy(), append(options, client.Preconditions{UID: &uid})...)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return err
	}
	if err == nil && t.o.Instance != nil {
		t.record(action.Event{Kind: corev1.EventTypeNormal, Reason: eventDeleted, Message: "deleted pod " + p.Name})
	}
	found, err := observe.Get(ctx, t.Observer.Live, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, new(corev1.Pod))
	switch {
	case err != nil:
		return err
	case found == nil || found.UID != uid:
		p.Gone = true
	default:
		p.Pod = found
	}
	return t.Observer.Look(ctx, t.o, p)
}

// changePod patches the pod's metadata, if nobody has changed the pod meanwhile.
func (t podWriter) changePod(ctx context.Context, p *view.Pod, change func(*corev1.Pod)) error {
	changed := p.DeepCopy()
	change(changed)
	err := t.Client.Patch(ctx, changed, client.MergeFromWithOptions(p.Pod, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) {
		p.Gone = true
		return t.Observer.Look(ctx, t.o, p)
	}
	if err == nil {
		p.Pod = changed
	}
	return err
}

func (t podWriter) release(ctx context.Context, p *view.Pod) error {
	return t.changePod(ctx, p, func(p *corev1.Pod) {
		p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == contract.FinalizerPod })
	})
}

// serve opens the readiness gate of a pod whose VM stood by: the kubelet makes it ready when its probes do.
func (t podWriter) serve(ctx context.Context, p *view.Pod) error {
	p.Directed = true
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": map[string]any{"conditions": []any{
		corev1.PodCondition{Type: contract.ConditionServes, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(t.o.Now), Reason: "Taken"},
	}}})
	if err != nil {
		return err
	}
	changed := p.DeepCopy()
	err = t.Client.Status().Patch(ctx, changed, client.RawPatch(types.StrategicMergePatchType, patch))
	if apierrors.IsNotFound(err) {
		p.Gone = true
		return t.Observer.Look(ctx, t.o, p)
	}
	if err == nil {
		p.Pod = changed
	}
	return err
}

func (t podWriter) relabel(ctx context.Context, p *view.Pod) error {
	p.Relabelled = true
	return t.changePod(ctx, p, func(p *corev1.Pod) { lifecycle.SetLabels(p, lifecycle.SharedLabels(t.o.Instance)) })
}
