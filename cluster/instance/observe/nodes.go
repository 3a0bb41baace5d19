package observe

import (
	"context"
	"fmt"
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
)

// Look fills in what is known of the node that a pod is bound to, or may have been.
func (r *Observer) Look(ctx context.Context, v *view.View, p *view.Pod) (err error) {
	name, machine := p.Spec.NodeName, v.Machine(p)
	switch {
	case p.Stray():
		p.Hosts, err = r.hosts(ctx, p.UID)
		return err
	case name == "":
		return nil
	}
	p.Report = r.Agents.Report(name, p.UID)
	ended := view.ComputeEnd(p.Pod) != nil && !p.Lives()
	if p.Node.Exists = true; machine == nil && ended && !p.Deleting() {
		return nil // it matters no more
	}
	if p.Node, err = r.Node(ctx, r.Client, name); err != nil {
		return err
	}
	if p.Node.Lost() || machine != nil && (ended || p.Promised) {
		// Much follows from it.
		if p.Node, err = r.Node(ctx, r.Live, name); err != nil {
			return err
		}
	}
	if p.Replaced = view.Replaces(p.Node.Machine, machine); ended && !p.Replaced && !p.Deleting() {
		p.Node = view.Node{Exists: true} // it matters no more
		return nil
	}
	if p.Report.Current || !p.Node.Exists {
		return nil
	}
	lease, err := Get(ctx, r.Live, types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: name}, new(coordinationv1.Lease))
	if lease != nil && lease.Spec.RenewTime != nil {
		p.Node.Renewed = lease.Spec.RenewTime.Time
		p.Node.Seen = r.leases.see(name, p.Node.Renewed, r.Now())
	}
	return err
}

// hosts are the nodes that may have had a pod: those with an agent, and those that have had one.
func (r *Observer) hosts(ctx context.Context, pod types.UID) ([]*view.Host, error) {
	var all corev1.NodeList
	if err := r.Live.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("listing the nodes that may have pod %s: %w", pod, err)
	}
	known := make(map[string]view.Node)
	for _, name := range r.Agents.Nodes() {
		known[name] = view.Node{} // unless there is a Node
	}
	for i := range all.Items {
		o := &all.Items[i]
		_, has := known[o.Name]
		_, had := o.Labels[contract.LabelSchedulable]
		if _, written := o.Annotations[contract.AnnotationHeartbeat]; has || had || written {
			known[o.Name] = view.NodeOf(o)
		}
	}
	hosts := make([]*view.Host, 0, len(known))
	for _, name := range slices.Sorted(maps.Keys(known)) {
		hosts = append(hosts, &view.Host{NodeName: name, Node: known[name], Report: r.Agents.Report(name, pod)})
	}
	return hosts, nil
}

func (r *Observer) Node(ctx context.Context, from client.Reader, name string) (view.Node, error) {
	found, err := Get(ctx, from, types.NamespacedName{Name: name}, new(corev1.Node))
	if err != nil || found == nil {
		return view.Node{}, err
	}
	return view.NodeOf(found), nil
}
