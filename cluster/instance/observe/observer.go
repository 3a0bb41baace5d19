package observe

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/attach"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/save"
	"github.com/vmlet/vmlet/cluster/instance/trouble"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/cluster/saves"
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

// instance is the one of this name, as it is in the cache or was written later; nil: there is none. If the pods know another than the
// cache, the API server says which is right.
func (r *Observer) instance(ctx context.Context, key types.NamespacedName, pods []corev1.Pod) (*kubevirtv1.VirtualMachineInstance, error) {
	vmi, err := Get(ctx, r.Client, key, new(kubevirtv1.VirtualMachineInstance))
	if err != nil {
		return nil, err
	}
	vmi = r.writes.latest(key, vmi)
	for i := range pods {
		if vmi == nil || view.UIDOf(pods[i].Labels) != vmi.UID {
			return Get(ctx, r.Live, key, new(kubevirtv1.VirtualMachineInstance))
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
	found, err := r.OwnPod(ctx, o.Instance)
	if err != nil {
		return err
	}
	if o.Pod = r.Vanished(o.Instance); found != nil {
		o.Pod = &view.Pod{Pod: found}
	}
	return nil
}

// Vanished is the pod that the status of an instance names and that is not there; nil: it names
// none, or the VM has ended.
func (r *Observer) Vanished(vmi *kubevirtv1.VirtualMachineInstance) *view.Pod {
	uid, node, had := view.Active(&vmi.Status)
	if !had || view.IsFinal(vmi.Status.Phase) {
		return nil
	}
	return &view.Pod{Gone: true, Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: r.PodName(vmi), UID: uid},
		Spec:       corev1.PodSpec{NodeName: node},
	}}
}

// OwnPod asks the API server for the instance's pod; nil: there is none, or another has its
// name.
func (r *Observer) OwnPod(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) (*corev1.Pod, error) {
	p, err := Get(ctx, r.Live, types.NamespacedName{Namespace: vmi.Namespace, Name: r.PodName(vmi)}, new(corev1.Pod))
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
