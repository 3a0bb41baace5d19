package observe

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmlet/vmlet/cluster/instance/attach"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/save"
	"github.com/vmlet/vmlet/cluster/instance/trouble"
	"github.com/vmlet/vmlet/cluster/instance/view"
)

// Observe reads the objects of a name: the instance and its pods, and what is known of
// their nodes. nil: there is nothing.
//
// The cache may be behind. What it has is only ever older than what is there, and steps that
// follow from it fail or do nothing then; but that something is not in it says nothing, and
// the API server is asked.
func (r *Observer) Observe(ctx context.Context, key types.NamespacedName) (*view.View, error) {
	o := &view.View{Now: r.Now().UTC().Truncate(time.Second)}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingFields{IndexInstance: key.Name}); err != nil {
		return nil, err
	}
	var err error
	if o.Instance, err = r.instance(ctx, key, pods.Items); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		p := &view.Pod{Pod: &pods.Items[i]}
		switch {
		case o.Instance == nil || view.UIDOf(p.Labels) != o.Instance.UID:
			o.Others = append(o.Others, p)
		case r.owns(o.Instance, p.Pod):
			o.Pod = p
		case view.SupersededIn(o.Instance, p.Pod):
			o.Others = append(o.Others, p)
		}
	}
	if call, has := r.Saves.Look(key); has {
		o.Call = &call
	}
	if o.Instance == nil && len(o.Others) == 0 && o.Call == nil {
		return nil, nil
	}
	if o.Instance != nil {
		if err := r.findPod(ctx, o); err != nil {
			return nil, err
		}
		if err = r.observeClaims(ctx, o); err != nil {
			return nil, err
		}
		if err = r.observeUsers(ctx, o); err != nil {
			return nil, err
		}
	}
	for _, p := range append(o.Others, o.Pod) {
		if p != nil {
			if err := r.Look(ctx, o, p); err != nil {
				return nil, err
			}
		}
	}
	if o.Instance != nil && trouble.Suspicious(o) {
		o.Pod.Trouble = r.podTrouble(ctx, o)
	}
	return o, r.observeSave(ctx, o)
}

// observeSave reads the state of a VM's save: the call, the pods that attach volumes, and of
// one that was saved what its pod and node were like.
func (r *Observer) observeSave(ctx context.Context, o *view.View) error {
	if o.Instance == nil || o.Pod == nil {
		return nil
	}
	if !o.Pod.Gone {
		var pods corev1.PodList
		if err := r.Client.List(ctx, &pods, client.InNamespace(o.Pod.Namespace), client.MatchingFields{IndexAttached: string(o.Pod.UID)}); err != nil {
			return err
		}
		for i := range pods.Items {
			o.Attachments = append(o.Attachments, &pods.Items[i])
		}
	}
	if p := attach.Suspicious(o); p != nil {
		o.AttachTrouble, _ = r.eventsOf(ctx, p)
	}
	if _, is := save.LastImage(o); !is || o.Final() {
		return nil
	}
	o.Images = r.Images(o.Pod.Pod)
	n, err := r.Node(ctx, r.Client, o.Pod.Spec.NodeName)
	o.Pod.Node.Labels = n.Labels
	return err
}

// observeClaims reads the claims that the instance names, and before it has a pod whether they are
// filled.
func (r *Observer) observeClaims(ctx context.Context, o *view.View) error {
	o.Claims, o.Filling = make(map[string]*corev1.PersistentVolumeClaim), make(map[string]*condition.Fault)
	for _, name := range claims.Names(o.Instance) {
		claim, err := Get(ctx, r.Client, types.NamespacedName{Namespace: o.Instance.Namespace, Name: name}, new(corev1.PersistentVolumeClaim))
		if err != nil {
			return err
		}
		if claim == nil {
			continue
		}
		o.Claims[name] = claim
		if o.Pod != nil || o.Final() {
			continue
		}
		if o.Filling[name], err = r.filling(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}
