package why

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// EventsOf is the field by which events are found: the object that they are about.
const EventsOf = "involvedObject.uid"

// maxEvents bounds what is read of the events about one object.
const maxEvents = 200

// NotFoundError means that there is neither a VM nor an instance of that name.
type NotFoundError struct{ Namespace, Name string }

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("there is no VirtualMachine %s in namespace %s: `kubectl get vm --all-namespaces` lists those that exist", e.Name, e.Namespace)
}

// Objects are what has to do with one VM. Any may be missing.
type Objects struct {
	VM       *kubevirtv1.VirtualMachine
	Instance *kubevirtv1.VirtualMachineInstance
	// Pods of the instance, newest first.
	Pods []corev1.Pod
	// Attachments are pods through which volumes are attached to those.
	Attachments []corev1.Pod
	// Claims that the VM's volumes name, and the one that its memory is saved to, in their
	// order; those with no UID don't exist.
	Claims []corev1.PersistentVolumeClaim
	// Node that the pod is bound to.
	Node *corev1.Node
	// Nodes are all, where no node takes the pod.
	Nodes []corev1.Node
	// Events about all of these but the node.
	Events []corev1.Event
	// Unread says what could not be read, which makes the page incomplete.
	Unread []error
}

// Gather reads the objects. What the user may not read is in Unread, but for the VM itself.
func Gather(ctx context.Context, from client.Reader, namespace, name string) (*Objects, error) {
	o := &Objects{VM: &kubevirtv1.VirtualMachine{}, Instance: &kubevirtv1.VirtualMachineInstance{}}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	vm, err := exists(from.Get(ctx, key, o.VM))
	if err != nil {
		return nil, err
	}
	instance, err := exists(from.Get(ctx, key, o.Instance))
	if err != nil {
		return nil, err
	}
	if !vm && !instance {
		return nil, &NotFoundError{Namespace: namespace, Name: name}
	}
	if !vm {
		o.VM = nil
	}
	if !instance {
		o.Instance = nil
	}
	o.readPods(ctx, from)
	o.readClaims(ctx, from, namespace)
	o.readNode(ctx, from)
	o.readEvents(ctx, from, namespace)
	return o, nil
}

// exists tells a missing object from a failure.
func exists(err error) (bool, error) {
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func (o *Objects) unread(what string, err error) bool {
	if err != nil {
		o.Unread = append(o.Unread, fmt.Errorf("%s: %w", what, err))
	}
	return err != nil
}

func (o *Objects) readPods(ctx context.Context, from client.Reader) {
	if o.Instance == nil {
		return
	}
	var all corev1.PodList
	err := from.List(ctx, &all, client.InNamespace(o.Instance.Namespace), client.MatchingLabels{contract.LabelCreatedBy: string(o.Instance.UID)})
	if o.unread("pods", err) {
		return
	}
	for _, p := range all.Items {
		if p.Labels[contract.LabelAttachedTo] == "" {
			o.Pods = append(o.Pods, p)
		}
	}
	slices.SortFunc(o.Pods, func(a, b corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	for i := range o.Pods {
		var attached corev1.PodList
		err := from.List(ctx, &attached, client.InNamespace(o.Instance.Namespace), client.MatchingLabels{contract.LabelAttachedTo: string(o.Pods[i].UID)})
		if o.Pods[i].UID == "" || o.unread("pods", err) {
			continue
		}
		o.Attachments = append(o.Attachments, attached.Items...)
	}
}

func (o *Objects) readClaims(ctx context.Context, from client.Reader, namespace string) {
	for _, name := range o.claimNames() {
		claim := corev1.PersistentVolumeClaim{}
		_, err := exists(from.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &claim))
		if o.unread("claim "+name, err) {
			continue
		}
		claim.Name, claim.Namespace = name, namespace
		o.Claims = append(o.Claims, claim)
	}
}

// claimNames are those of the instance, or of the VM's template if there is none.
func (o *Objects) claimNames() (names []string) {
	var volumes []kubevirtv1.Volume
	switch {
	case o.Instance != nil:
		volumes = o.Instance.Spec.Volumes
	case o.VM.Spec.Template != nil:
		volumes = o.VM.Spec.Template.Spec.Volumes
	}
	for _, v := range volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.DataVolume != nil:
			names = append(names, v.DataVolume.Name)
		case v.Ephemeral != nil && v.Ephemeral.PersistentVolumeClaim != nil:
			names = append(names, v.Ephemeral.PersistentVolumeClaim.ClaimName)
		}
	}
	if o.Instance != nil {
		for _, v := range o.Instance.Spec.UtilityVolumes {
			names = append(names, v.ClaimName)
		}
	}
	if o.VM != nil && o.VM.Status.HibernationStatus != nil && o.VM.Status.HibernationStatus.ClaimName != "" {
		names = append(names, o.VM.Status.HibernationStatus.ClaimName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// readNode leaves out nodes that the user may not read: few may.
func (o *Objects) readNode(ctx context.Context, from client.Reader) {
	if len(o.Pods) == 0 {
		return
	}
	if unscheduled(&o.Pods[0]) != nil {
		var all corev1.NodeList
		if !o.unread("nodes", from.List(ctx, &all)) {
			o.Nodes = all.Items
		}
	}
	if o.Pods[0].Spec.NodeName == "" {
		return
	}
	node := &corev1.Node{}
	if err := from.Get(ctx, types.NamespacedName{Name: o.Pods[0].Spec.NodeName}, node); !o.unread("node "+o.Pods[0].Spec.NodeName, err) {
		o.Node = node
	}
}

func (o *Objects) readEvents(ctx context.Context, from client.Reader, namespace string) {
	var about []metav1.Object
	if o.VM != nil {
		about = append(about, o.VM)
	}
	if o.Instance != nil {
		about = append(about, o.Instance)
	}
	for i := range o.Pods {
		about = append(about, &o.Pods[i])
	}
	for i := range o.Attachments {
		about = append(about, &o.Attachments[i])
	}
	for i := range o.Claims {
		about = append(about, &o.Claims[i])
	}
	for _, object := range about {
		if object.GetUID() == "" {
			continue
		}
		var some corev1.EventList
		err := from.List(ctx, &some, client.InNamespace(namespace), client.Limit(maxEvents), client.MatchingFields{EventsOf: string(object.GetUID())})
		if o.unread("events", err) {
			return
		}
		o.Events = append(o.Events, some.Items...)
	}
}
