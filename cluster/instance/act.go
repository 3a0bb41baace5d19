package instance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/calls"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/lifecycle"
	"github.com/vmlet/vmlet/cluster/instance/observe"
	"github.com/vmlet/vmlet/cluster/instance/trouble"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// askedAtOnce is how many agents are asked at once about one pod.
const askedAtOnce = 16

// killPatience is how long an agent may take to kill a VM.
const killPatience = 30 * time.Second

// hurryPatience is how long an agent may take to pass on that a VM is to end sooner. It answers
// when the VM has ended, which nobody waits for.
const hurryPatience = 2 * time.Second

// Reasons of events of what is done, as KubeVirt spells them.
const (
	eventCreated = "SuccessfulCreate"
	eventDeleted = "SuccessfulDelete"
	eventGone    = "Deleted"
)

// take carries out an action, and has what is observed follow it.
func (t *round) take(ctx context.Context, a action.Action) error {
	log.FromContext(ctx).V(1).Info("taking a step", "step", a.String())
	switch a := a.(type) {
	case action.Protect:
		return t.protect(ctx)
	case action.CreatePod:
		return podWriter{t}.createAlone(ctx)
	case action.ConfirmEnd:
		agentCaller{t}.confirm(ctx, a.Pod)
	case action.WriteStatus:
		return t.write(ctx, a)
	case action.DeletePod:
		return podWriter{t}.remove(ctx, a.Pod)
	case action.DestroyPod:
		return podWriter{t}.remove(ctx, a.Pod, client.GracePeriodSeconds(0))
	case action.KillGuest:
		agentCaller{t}.kill(a.Pod)
	case action.HurryGuest:
		agentCaller{t}.hurry(a.Pod)
	case action.Resize:
		agentCaller{t}.resize(ctx, a.Pod, a.Sizing)
	case action.ReleasePod:
		return podWriter{t}.release(ctx, a.Pod)
	case action.Finalize:
		return t.finalize(ctx)
	case action.LabelInstance:
		return t.label(ctx)
	case action.RelabelPod:
		return podWriter{t}.relabel(ctx, a.Pod)
	case action.Attach:
		return attacher{t}.attach(ctx, a.Claim)
	case action.Detach:
		return attacher{t}.detach(ctx, a.Attachment)
	case action.Save:
		t.Saves.Start(t.key, a.Request)
		t.seeCall()
	case action.CancelSave:
		t.Saves.Cancel(t.key)
		t.seeCall()
	default:
		return fmt.Errorf("there is no action %T", a)
	}
	return nil
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

// podWriter makes, changes and deletes pods of VMs.
type podWriter struct{ *round }

// create makes the instance's pod. What speaks against it becomes the round's fault, which
// the next step writes down.
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

func (t podWriter) relabel(ctx context.Context, p *view.Pod) error {
	p.Relabelled = true
	return t.changePod(ctx, p, func(p *corev1.Pod) { lifecycle.SetLabels(p, lifecycle.SharedLabels(t.o.Instance)) })
}

// agentCaller calls the agents of pods' nodes.
type agentCaller struct{ *round }

// ask has an agent be called about a pod, and says how that has ended, if it has: a round that is
// called again when it has looks again.
func (t agentCaller) ask(p *view.Pod, what string, do func(context.Context, nodev1.NodeServiceClient) error) (ended bool, err error) {
	key := calls.Key{Object: t.key, Node: p.Spec.NodeName, Pod: p.UID, What: what}
	answer := t.Calls.Make(key, func(ctx context.Context) (Answers, error) {
		agent, err := t.Agents.Client(key.Node, key.Pod)
		if err != nil {
			return nil, err
		}
		return nil, do(ctx, agent)
	})
	t.lookAgain(answer.Again)
	return answer.Ended, answer.Err
}

// lookAgain has the instance be looked at again after a time, if it is not 0.
func (t *round) lookAgain(in time.Duration) {
	if in > 0 && (t.again == 0 || in < t.again) {
		t.again = in
	}
}

// confirm asks the agent, or those of all nodes that may have had the pod. A promise is kept for this
// round alone: the agent gives it again.
func (t agentCaller) confirm(ctx context.Context, p *view.Pod) {
	p.Confirming = true
	hosts := map[string]*view.Host{p.Spec.NodeName: &p.Host}
	if p.Stray() {
		hosts = make(map[string]*view.Host, len(p.Hosts))
		for _, h := range p.Hosts {
			hosts[h.NodeName] = h
		}
	}
	names, uid, machine := slices.Collect(maps.Keys(hosts)), p.UID, t.promising(p)
	key := calls.Key{Object: t.key, Node: p.Spec.NodeName, Pod: uid, What: "confirm"}
	answer := t.Calls.Make(key, func(ctx context.Context) (Answers, error) { return t.askAll(ctx, names, machine, uid), nil })
	t.lookAgain(answer.Again)
	for node, err := range answer.Result {
		h := hosts[node]
		if h == nil {
			continue // it has got or lost its agent since the call was made
		}
		h.Asked, h.Promised, h.Denied = true, err == nil, status.Code(err) == codes.FailedPrecondition
		if err != nil && !h.Denied {
			t.failures = append(t.failures, fmt.Errorf("asking whether the VM of pod %s has ended: %w", p.Name, err))
		}
	}
	t.recheck(ctx, p)
	if p.Denied && (p.Gone || !view.Started(p.Report.VM)) {
		// A process of the container is left, and nobody tells of its end; else a VM runs, and
		// the agent tells of that.
		t.lookAgain(confirmAgain)
	}
}

// promising is the machine whose agent is asked for a promise about a pod's VM, as its identity; empty: any of the node's name,
// as that is not known, or another machine than the VM's is asked what it runs itself.
func (t agentCaller) promising(p *view.Pod) string {
	if machine := t.o.Machine(p); machine != nil && !p.Replaced {
		return machine.Identity
	}
	return ""
}

// recheck asks the API server whether the machine is still the one that the VM was started on whose agent has made a
// promise: the cache may be behind.
func (t agentCaller) recheck(ctx context.Context, p *view.Pod) {
	machine := t.o.Machine(p)
	if machine == nil || !p.Promised {
		return
	}
	n, err := t.Observer.Node(ctx, t.Observer.Live, p.Spec.NodeName)
	if err != nil {
		p.Promised = false
		t.failures = append(t.failures, err)
		return
	}
	p.Replaced = view.Replaces(n.Machine, machine)
}

// askAll asks the agents of nodes whether the VM of a pod has ended, some at a time.
func (t agentCaller) askAll(ctx context.Context, names []string, machine string, pod types.UID) Answers {
	var mu sync.Mutex
	answers := make(Answers, len(names))
	var all errgroup.Group
	all.SetLimit(askedAtOnce)
	for _, node := range names {
		all.Go(func() error {
			err := t.Agents.ConfirmEnded(ctx, node, machine, pod)
			mu.Lock()
			defer mu.Unlock()
			answers[node] = err
			return nil
		})
	}
	_ = all.Wait() // the errors are answers
	return answers
}

func (t agentCaller) kill(p *view.Pod) {
	t.end(p, "kill", killPatience, func(ctx context.Context, agent nodev1.NodeServiceClient, name string) error {
		_, err := agent.KillVM(ctx, &nodev1.KillVMRequest{Name: name})
		return err
	})
}

func (t agentCaller) hurry(p *view.Pod) {
	var grace *int64 // nil: the VM's own
	what := "stop"
	if s := t.o.Instance.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = new(lifecycle.Seconds(*s).Milliseconds())
		what = fmt.Sprintf("stop within %d s", *s)
	}
	t.end(p, what, hurryPatience, func(ctx context.Context, agent nodev1.NodeServiceClient, name string) error {
		_, err := agent.StopVM(ctx, &nodev1.StopVMRequest{Name: name, GracePeriodMs: grace})
		if status.Code(err) == codes.DeadlineExceeded {
			return nil // it goes on without us
		}
		return err
	})
}

// end has the agent end a pod's VM.
func (t agentCaller) end(p *view.Pod, what string, within time.Duration, do func(context.Context, nodev1.NodeServiceClient, string) error) {
	p.Hurried = true
	name := p.Namespace + "/" + p.Name
	_, err := t.ask(p, what, func(ctx context.Context, agent nodev1.NodeServiceClient) error {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return do(ctx, agent, name)
	})
	if err != nil {
		t.failures = append(t.failures, fmt.Errorf("%s the VM of pod %s: %w", what, p.Name, err))
	}
}
