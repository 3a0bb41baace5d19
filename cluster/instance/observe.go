package instance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/attach"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/save"
	"github.com/vmlet/vmlet/cluster/instance/trouble"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/cluster/saves"
	"github.com/vmlet/vmlet/contract"
)

const (
	// eventsOfUID selects events by the object that they are of.
	eventsOfUID = "involvedObject.uid"
	// maxEvents is more than a pod has that does not start.
	maxEvents = 100
)

// Reports are what agents say of the VMs of pods that are bound to their nodes, by the nodes' names.
type Reports interface {
	// Report is the last that the agent has said of the pod's VM.
	Report(node string, pod types.UID) nodes.Report
	// Nodes are those that have an agent.
	Nodes() []string
}

// SaveCalls are the calls by which agents save VMs, by instances' names.
type SaveCalls interface {
	// Look returns a VM's call; false: there is none.
	Look(vm types.NamespacedName) (saves.Call, bool)
}

// Observer reads all that is known of an instance. It writes nothing. Its exported fields are set before it is used
// and not changed; its methods may be called concurrently.
type Observer struct {
	// Client reads from a cache that has the indexes of Indexes. Live reads from the API server:
	// it is asked before anything follows from an object's absence.
	Client, Live client.Reader
	Agents       Reports
	Saves        SaveCalls
	// DataVolumes says whether the cluster has the kinds of CDI.
	DataVolumes bool
	// PodName is the name of an instance's pod, which is made from the instance's UID alone.
	PodName func(vmi *kubevirtv1.VirtualMachineInstance) string
	// Images are the images of a pod's containers, by digest where that is known.
	Images func(vm *corev1.Pod) []kubevirtv1.SavedContainerImage
	Now    func() time.Time

	leases leases
	writes ownWrites
}

// Note has an instance that was written be seen as it was stored, though the cache may not have it yet.
func (r *Observer) Note(before, stored *kubevirtv1.VirtualMachineInstance) {
	r.writes.note(before, stored)
}

// observe reads the objects of a name: the instance and its pods, and what is known of
// their nodes. nil: there is nothing.
//
// The cache may be behind. What it has is only ever older than what is there, and steps that
// follow from it fail or do nothing then; but that something is not in it says nothing, and
// the API server is asked.
func (r *Observer) observe(ctx context.Context, key types.NamespacedName) (*view.View, error) {
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
			if err := r.look(ctx, o, p); err != nil {
				return nil, err
			}
		}
	}
	if o.Instance != nil && trouble.Suspicious(o) {
		o.Pod.Trouble = r.podTrouble(ctx, o)
	}
	return o, r.observeSave(ctx, o)
}

// podTrouble reads the events of a pod that does not start. If they can't be read, it is what
// was known before: clusters may keep events apart from all else.
func (r *Observer) podTrouble(ctx context.Context, o *view.View) *condition.Fault {
	f, err := r.eventsOf(ctx, o.Pod.Pod)
	if err == nil {
		return f
	}
	if was := condition.Find(o.Instance.Status.Conditions, kubevirtv1.ConditionSynchronized); was != nil {
		return &condition.Fault{Reason: was.Reason, Message: was.Message}
	}
	return nil
}

// eventsOf is why a pod does not start, by its events; nil: they don't say.
func (r *Observer) eventsOf(ctx context.Context, p *corev1.Pod) (*condition.Fault, error) {
	var events corev1.EventList
	err := r.Live.List(ctx, &events, client.InNamespace(p.Namespace), client.Limit(maxEvents),
		client.MatchingFields{eventsOfUID: string(p.UID)})
	if err != nil {
		log.FromContext(ctx).Info("failed to read the events of a pod that does not start", "pod", p.Name, "error", err.Error())
		return nil, err
	}
	return trouble.OfEvents(events.Items, p.Namespace), nil
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
	n, err := r.node(ctx, r.Client, o.Pod.Spec.NodeName)
	o.Pod.Node.Labels = n.Labels
	return err
}

// instance is the one of this name, as it is in the cache or was written later; nil: there is none. If the pods know another than the
// cache, the API server says which is right.
func (r *Observer) instance(ctx context.Context, key types.NamespacedName, pods []corev1.Pod) (*kubevirtv1.VirtualMachineInstance, error) {
	vmi, err := get(ctx, r.Client, key, new(kubevirtv1.VirtualMachineInstance))
	if err != nil {
		return nil, err
	}
	vmi = r.writes.latest(key, vmi)
	for i := range pods {
		if vmi == nil || view.UIDOf(pods[i].Labels) != vmi.UID {
			return get(ctx, r.Live, key, new(kubevirtv1.VirtualMachineInstance))
		}
	}
	return vmi, nil
}

// findPod looks for a pod that the instance's status knows, or that may be about to be made,
// and that the cache does not have.
func (r *Observer) findPod(ctx context.Context, o *view.View) error {
	if o.Pod != nil || o.Final() && !o.Deleting() || o.NeverHadPod() && !o.Deleting() {
		return nil
	}
	found, err := r.ownPod(ctx, o.Instance)
	if err != nil {
		return err
	}
	if o.Pod = r.vanished(o.Instance); found != nil {
		o.Pod = &view.Pod{Pod: found}
	}
	return nil
}

// vanished is the pod that the status of an instance names and that is not there; nil: it names
// none, or the VM has ended.
func (r *Observer) vanished(vmi *kubevirtv1.VirtualMachineInstance) *view.Pod {
	uid, node, had := view.Active(&vmi.Status)
	if !had || view.IsFinal(vmi.Status.Phase) {
		return nil
	}
	return &view.Pod{Gone: true, Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: r.PodName(vmi), UID: uid},
		Spec:       corev1.PodSpec{NodeName: node},
	}}
}

// ownPod asks the API server for the instance's pod; nil: there is none, or another has its
// name.
func (r *Observer) ownPod(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) (*corev1.Pod, error) {
	p, err := get(ctx, r.Live, types.NamespacedName{Namespace: vmi.Namespace, Name: r.PodName(vmi)}, new(corev1.Pod))
	if p == nil || !r.owns(vmi, p) {
		return nil, err
	}
	return p, nil
}

// owns says whether a pod is the instance's: made for it, and controlled by it, or by nobody and
// named in its status. The garbage collector takes the owner from the pods of an instance that is
// deleted with --cascade=orphan.
func (r *Observer) owns(vmi *kubevirtv1.VirtualMachineInstance, p *corev1.Pod) bool {
	if p.Name != r.PodName(vmi) || view.UIDOf(p.Labels) != vmi.UID || view.SupersededIn(vmi, p) {
		return false
	}
	uid, _, named := view.Active(&vmi.Status)
	return metav1.IsControlledBy(p, vmi) || metav1.GetControllerOf(p) == nil && named && p.UID == uid
}

// observeClaims reads the claims that the instance names, and before it has a pod whether they are
// filled.
func (r *Observer) observeClaims(ctx context.Context, o *view.View) error {
	o.Claims, o.Filling = make(map[string]*corev1.PersistentVolumeClaim), make(map[string]*condition.Fault)
	for _, name := range claims.Names(o.Instance) {
		claim, err := get(ctx, r.Client, types.NamespacedName{Namespace: o.Instance.Namespace, Name: name}, new(corev1.PersistentVolumeClaim))
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

// look fills in what is known of the node that a pod is bound to, or may have been.
func (r *Observer) look(ctx context.Context, o *view.View, p *view.Pod) (err error) {
	name, machine := p.Spec.NodeName, o.Machine(p)
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
	if p.Node, err = r.node(ctx, r.Client, name); err != nil {
		return err
	}
	if p.Node.Lost() || machine != nil && (ended || p.Promised) {
		// Much follows from it.
		if p.Node, err = r.node(ctx, r.Live, name); err != nil {
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
	lease, err := get(ctx, r.Live, types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: name}, new(coordinationv1.Lease))
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

// leases is when each node's Lease was first read with the time that it has now. The zero value
// has none. Its methods may be called concurrently.
type leases struct {
	mu    sync.Mutex
	nodes map[string]sighting
}

type sighting struct{ renewed, at time.Time }

// see notes a Lease's time and returns when it was read first.
func (l *leases) see(node string, renewed, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes == nil {
		l.nodes = make(map[string]sighting)
	}
	if s, has := l.nodes[node]; has && s.renewed.Equal(renewed) {
		return s.at
	}
	l.nodes[node] = sighting{renewed, now}
	return now
}

func (r *Observer) node(ctx context.Context, from client.Reader, name string) (view.Node, error) {
	found, err := get(ctx, from, types.NamespacedName{Name: name}, new(corev1.Node))
	if err != nil || found == nil {
		return view.Node{}, err
	}
	return view.NodeOf(found), nil
}

// get is client.Get, with the zero value for what is not there.
func get[T client.Object](ctx context.Context, from client.Reader, key types.NamespacedName, into T) (T, error) {
	var none T
	switch err := from.Get(ctx, key, into); {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("reading %T %s: %w", into, key, err)
	}
	return into, nil
}
