package instance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/machineid"
)

const (
	// eventsOfUID selects events by the object that they are of.
	eventsOfUID = "involvedObject.uid"
	// maxEvents is more than a pod has that does not start.
	maxEvents = 100
)

// observe reads the objects of a name: the instance and its pods, and what is known of
// their nodes. nil: there is nothing.
//
// The cache may be behind. What it has is only ever older than what is there, and steps that
// follow from it fail or do nothing then; but that something is not in it says nothing, and
// the API server is asked.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*state, error) {
	o := &state{now: r.Now().UTC().Truncate(time.Second)}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingFields{IndexInstance: key.Name}); err != nil {
		return nil, err
	}
	var err error
	if o.instance, err = r.instance(ctx, key, pods.Items); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		p := &pod{Pod: &pods.Items[i]}
		switch {
		case o.instance == nil || uidOf(p.Labels) != o.instance.UID:
			o.others = append(o.others, p)
		case r.owns(o.instance, p.Pod):
			o.pod = p
		case supersededIn(o.instance, p.Pod):
			o.others = append(o.others, p)
		}
	}
	if call, has := r.Saves.Look(key); has {
		o.call = &call
	}
	if o.instance == nil && len(o.others) == 0 && o.call == nil {
		return nil, nil
	}
	if o.instance != nil {
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
	for _, p := range append(o.others, o.pod) {
		if p != nil {
			if err := r.look(ctx, o, p); err != nil {
				return nil, err
			}
		}
	}
	if o.instance != nil && suspicious(o) {
		o.pod.trouble = r.trouble(ctx, o)
	}
	return o, r.observeSave(ctx, o)
}

// trouble reads the events of a pod that does not start. If they can't be read, it is what
// was known before: clusters may keep events apart from all else.
func (r *Reconciler) trouble(ctx context.Context, o *state) *condition.Fault {
	f, err := r.eventsOf(ctx, o.pod.Pod)
	if err == nil {
		return f
	}
	if was := condition.Find(o.instance.Status.Conditions, kubevirtv1.ConditionSynchronized); was != nil {
		return &condition.Fault{Reason: was.Reason, Message: was.Message}
	}
	return nil
}

// eventsOf is why a pod does not start, by its events; nil: they don't say.
func (r *Reconciler) eventsOf(ctx context.Context, p *corev1.Pod) (*condition.Fault, error) {
	var events corev1.EventList
	err := r.Live.List(ctx, &events, client.InNamespace(p.Namespace), client.Limit(maxEvents),
		client.MatchingFields{eventsOfUID: string(p.UID)})
	if err != nil {
		log.FromContext(ctx).Info("failed to read the events of a pod that does not start", "pod", p.Name, "error", err.Error())
		return nil, err
	}
	return eventFault(events.Items, p.Namespace), nil
}

// observeSave reads the state of a VM's save: the call, the pods that attach volumes, and of
// one that was saved what its pod and node were like.
func (r *Reconciler) observeSave(ctx context.Context, o *state) error {
	if o.instance == nil || o.pod == nil {
		return nil
	}
	if !o.pod.gone {
		var pods corev1.PodList
		if err := r.Client.List(ctx, &pods, client.InNamespace(o.pod.Namespace), client.MatchingFields{IndexAttached: string(o.pod.UID)}); err != nil {
			return err
		}
		for i := range pods.Items {
			o.attachments = append(o.attachments, &pods.Items[i])
		}
	}
	if p := suspiciousAttachment(o); p != nil {
		o.attachTrouble, _ = r.eventsOf(ctx, p)
	}
	if _, is := lastImage(o); !is || o.final() {
		return nil
	}
	o.images = r.Images(o.pod.Pod)
	n, err := r.node(ctx, r.Client, o.pod.Spec.NodeName)
	o.pod.node.labels = n.labels
	return err
}

// instance is the one of this name, as it is in the cache or was written later; nil: there is none. If the pods know another than the
// cache, the API server says which is right.
func (r *Reconciler) instance(ctx context.Context, key types.NamespacedName, pods []corev1.Pod) (*kubevirtv1.VirtualMachineInstance, error) {
	vmi, err := get(ctx, r.Client, key, new(kubevirtv1.VirtualMachineInstance))
	if err != nil {
		return nil, err
	}
	vmi = r.writes.latest(key, vmi)
	for i := range pods {
		if vmi == nil || uidOf(pods[i].Labels) != vmi.UID {
			return get(ctx, r.Live, key, new(kubevirtv1.VirtualMachineInstance))
		}
	}
	return vmi, nil
}

// findPod looks for a pod that the instance's status knows, or that may be about to be made,
// and that the cache does not have.
func (r *Reconciler) findPod(ctx context.Context, o *state) error {
	if o.pod != nil || o.final() && !o.deleting() || o.neverHadPod() && !o.deleting() {
		return nil
	}
	found, err := r.ownPod(ctx, o.instance)
	if err != nil {
		return err
	}
	if o.pod = r.vanished(o.instance); found != nil {
		o.pod = &pod{Pod: found}
	}
	return nil
}

// vanished is the pod that the status of an instance names and that is not there; nil: it names
// none, or the VM has ended.
func (r *Reconciler) vanished(vmi *kubevirtv1.VirtualMachineInstance) *pod {
	uid, node, had := active(&vmi.Status)
	if !had || isFinal(vmi.Status.Phase) {
		return nil
	}
	return &pod{gone: true, Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: r.PodName(vmi), UID: uid},
		Spec:       corev1.PodSpec{NodeName: node},
	}}
}

// ownPod asks the API server for the instance's pod; nil: there is none, or another has its
// name.
func (r *Reconciler) ownPod(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) (*corev1.Pod, error) {
	p, err := get(ctx, r.Live, types.NamespacedName{Namespace: vmi.Namespace, Name: r.PodName(vmi)}, new(corev1.Pod))
	if p == nil || !r.owns(vmi, p) {
		return nil, err
	}
	return p, nil
}

// owns says whether a pod is the instance's: made for it, and controlled by it, or by nobody and
// named in its status. The garbage collector takes the owner from the pods of an instance that is
// deleted with --cascade=orphan.
func (r *Reconciler) owns(vmi *kubevirtv1.VirtualMachineInstance, p *corev1.Pod) bool {
	if p.Name != r.PodName(vmi) || uidOf(p.Labels) != vmi.UID || supersededIn(vmi, p) {
		return false
	}
	uid, _, named := active(&vmi.Status)
	return metav1.IsControlledBy(p, vmi) || metav1.GetControllerOf(p) == nil && named && p.UID == uid
}

// supersededIn: the instance's status names another pod, which was there before this one and may
// have vanished: a controller made this one from a cache that was behind. An instance has one pod
// in its life.
func supersededIn(vmi *kubevirtv1.VirtualMachineInstance, p *corev1.Pod) bool {
	uid, _, had := active(&vmi.Status)
	return had && uid != p.UID && uidOf(p.Labels) == vmi.UID
}

// observeClaims reads the claims that the instance names, and before it has a pod whether they are
// filled.
func (r *Reconciler) observeClaims(ctx context.Context, o *state) error {
	o.claims, o.filling = make(map[string]*corev1.PersistentVolumeClaim), make(map[string]*condition.Fault)
	for _, name := range claimNames(o.instance) {
		claim, err := get(ctx, r.Client, types.NamespacedName{Namespace: o.instance.Namespace, Name: name}, new(corev1.PersistentVolumeClaim))
		if err != nil {
			return err
		}
		if claim == nil {
			continue
		}
		o.claims[name] = claim
		if o.pod != nil || o.final() {
			continue
		}
		if o.filling[name], err = r.filling(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

// look fills in what is known of the node that a pod is bound to, or may have been.
func (r *Reconciler) look(ctx context.Context, o *state, p *pod) (err error) {
	name, machine := p.Spec.NodeName, o.machine(p)
	switch {
	case p.stray():
		p.hosts, err = r.hosts(ctx, p.UID)
		return err
	case name == "":
		return nil
	}
	p.report = r.Agents.Report(name, p.UID)
	ended := computeEnd(p.Pod) != nil && !p.lives()
	if p.node.exists = true; machine == nil && ended && !p.deleting() {
		return nil // it matters no more
	}
	if p.node, err = r.node(ctx, r.Client, name); err != nil {
		return err
	}
	if p.node.lost() || machine != nil && (ended || p.promised) {
		// Much follows from it.
		if p.node, err = r.node(ctx, r.Live, name); err != nil {
			return err
		}
	}
	if p.replaced = replaces(p.node.machine, machine); ended && !p.replaced && !p.deleting() {
		p.node = node{exists: true} // it matters no more
		return nil
	}
	if p.report.Current || !p.node.exists {
		return nil
	}
	lease, err := get(ctx, r.Live, types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: name}, new(coordinationv1.Lease))
	if lease != nil && lease.Spec.RenewTime != nil {
		p.node.renewed = lease.Spec.RenewTime.Time
		p.node.seen = r.leases.see(name, p.node.renewed, r.Now())
	}
	return err
}

// machine is the one that a pod's VM was started on; nil: that is not known, or matters no more.
func (o *state) machine(p *pod) *kubevirtv1.NodeMachine {
	if p != o.pod || o.final() {
		return nil
	}
	return o.instance.Status.NodeMachine
}

// machineOf is which machine a Node is; nil: it doesn't say. Where the firmware has no UUID the kubelet takes the machine
// id in its place, which another system on the same machine does not have, and which some systems make again with each boot.
func machineOf(o *corev1.Node) *kubevirtv1.NodeMachine {
	plain := func(id string) string { return strings.ToLower(strings.ReplaceAll(id, "-", "")) }
	info := o.Status.NodeInfo
	identity := machineid.Of(info.SystemUUID)
	if identity == "" || plain(info.SystemUUID) == plain(info.MachineID) {
		return nil
	}
	return &kubevirtv1.NodeMachine{NodeUID: o.UID, Identity: identity}
}

// replaces: a Node is another machine than it was. By deleting the Node the administrator has said that nothing runs there
// any more, and the one that is there now is as good as any.
func replaces(now, before *kubevirtv1.NodeMachine) bool {
	return now != nil && before != nil && now.NodeUID == before.NodeUID && before.Identity != "" && now.Identity != before.Identity
}

// hosts are the nodes that may have had a pod: those with an agent, and those that have had one.
func (r *Reconciler) hosts(ctx context.Context, pod types.UID) ([]*host, error) {
	var all corev1.NodeList
	if err := r.Live.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("listing the nodes that may have pod %s: %w", pod, err)
	}
	known := make(map[string]node)
	for _, name := range r.Agents.Nodes() {
		known[name] = node{} // unless there is a Node
	}
	for i := range all.Items {
		o := &all.Items[i]
		_, has := known[o.Name]
		_, had := o.Labels[contract.LabelSchedulable]
		if _, written := o.Annotations[contract.AnnotationHeartbeat]; has || had || written {
			known[o.Name] = nodeOf(o)
		}
	}
	hosts := make([]*host, 0, len(known))
	for _, name := range slices.Sorted(maps.Keys(known)) {
		hosts = append(hosts, &host{name: name, node: known[name], report: r.Agents.Report(name, pod)})
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

func (r *Reconciler) node(ctx context.Context, from client.Reader, name string) (node, error) {
	found, err := get(ctx, from, types.NamespacedName{Name: name}, new(corev1.Node))
	if err != nil || found == nil {
		return node{}, err
	}
	return nodeOf(found), nil
}

// shutdownMessage is in what the kubelet says of a node that is not ready as it shuts down
// (pkg/kubelet/nodeshutdown of Kubernetes).
const shutdownMessage = "node is shutting down"

// nodeOf is what a Node says.
func nodeOf(o *corev1.Node) node {
	n := node{exists: true, ready: corev1.ConditionUnknown, since: o.CreationTimestamp.Time, labels: o.Labels, machine: machineOf(o)}
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.NodeReady {
			n.ready, n.since = c.Status, c.LastTransitionTime.Time
			n.shuttingDown = c.Status == corev1.ConditionFalse && strings.Contains(c.Message, shutdownMessage)
		}
	}
	for _, t := range o.Spec.Taints {
		n.outOfService = n.outOfService || t.Key == corev1.TaintNodeOutOfService
		n.formerOff = n.formerOff || t.Key == contract.TaintFormerMachineOff
	}
	return n
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
