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
// The cache may be behind. What it has is only ever older than what is there, and actions that
// follow from it fail or do nothing then; but that something is not in it says nothing, and
// the API server is asked.
func (r *Observer) Observe(ctx context.Context, key types.NamespacedName) (*view.View, error) {
	v := &view.View{Now: r.Now().UTC().Truncate(time.Second)}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingFields{IndexInstance: key.Name}); err != nil {
		return nil, err
	}
	var err error
	if v.Instance, err = r.instance(ctx, key, pods.Items); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		p := &view.Pod{Pod: &pods.Items[i]}
		switch {
		case v.Instance == nil || view.UIDOf(p.Labels) != v.Instance.UID:
			v.Others = append(v.Others, p)
		case r.owns(v.Instance, p.Pod):
			v.Pod = p
		case view.SupersededIn(v.Instance, p.Pod):
			v.Others = append(v.Others, p)
		}
	}
	if call, has := r.Saves.Look(key); has {
		v.Call = &call
	}
	if v.Instance == nil && len(v.Others) == 0 && v.Call == nil {
		return nil, nil
	}
	if v.Instance != nil {
		if err := r.findPod(ctx, v); err != nil {
			return nil, err
		}
		if err = r.observeClaims(ctx, v); err != nil {
			return nil, err
		}
		if err = r.observeUsers(ctx, v); err != nil {
			return nil, err
		}
	}
	for _, p := range append(v.Others, v.Pod) {
		if p != nil {
			if err := r.Look(ctx, v, p); err != nil {
				return nil, err
			}
		}
	}
	if v.Instance != nil && trouble.Suspicious(v) {
		v.Pod.Trouble = r.podTrouble(ctx, v)
	}
	return v, r.observeSave(ctx, v)
}

// observeSave reads the state of a VM's save: the call, the pods that attach volumes, and of
// one that was saved what its pod and node were like.
func (r *Observer) observeSave(ctx context.Context, v *view.View) error {
	if v.Instance == nil || v.Pod == nil {
		return nil
	}
	if !v.Pod.Gone {
		var pods corev1.PodList
		if err := r.Client.List(ctx, &pods, client.InNamespace(v.Pod.Namespace), client.MatchingFields{IndexAttached: string(v.Pod.UID)}); err != nil {
			return err
		}
		for i := range pods.Items {
			v.Attachments = append(v.Attachments, &pods.Items[i])
		}
	}
	if p := attach.Suspicious(v); p != nil {
		v.AttachTrouble, _ = r.eventsOf(ctx, p, "")
	}
	if _, is := save.LastImage(v); !is || v.Final() {
		return nil
	}
	v.Images = r.Images(v.Pod.Pod)
	n, err := r.Node(ctx, r.Client, v.Pod.Spec.NodeName)
	v.Pod.Node.Labels = n.Labels
	return err
}

// observeClaims reads the claims that the instance names, and before it has a pod whether they are
// filled.
func (r *Observer) observeClaims(ctx context.Context, v *view.View) error {
	v.Claims, v.Filling = make(map[string]*corev1.PersistentVolumeClaim), make(map[string]*condition.Fault)
	for _, name := range claims.Names(v.Instance) {
		claim, err := Get(ctx, r.Client, types.NamespacedName{Namespace: v.Instance.Namespace, Name: name}, new(corev1.PersistentVolumeClaim))
		if err != nil {
			return err
		}
		if claim == nil {
			continue
		}
		v.Claims[name] = claim
		if v.Pod != nil || v.Final() {
			continue
		}
		if v.Filling[name], err = r.filling(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}
