package installation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/contract"
	hypervisors "github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm/described"
)

// StackName is the DaemonSet with a pod of the virtualisation stack's image on each node, in which the node's
// agent asks the VMMs of the image.
const StackName = "vmlet-stack"

// stackReady is the condition that says whether the stack's image runs VMs.
const stackReady = "VirtualizationStackReady"

// maxFailures bounds how many nodes a status names.
const maxFailures = 10

// askStack makes the DaemonSet of a stack that has an image of its own, or deletes it.
func (i *Installation) askStack(ctx context.Context, c configuration.Configuration) error {
	if c.Stack.Launcher != "" {
		return i.applyOwn(ctx, i.stackPods(c))
	}
	return i.removeStack(ctx)
}

// removeStack deletes the pods in which a stack's image is asked.
func (i *Installation) removeStack(ctx context.Context) error {
	is := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: StackName}}
	switch err := i.Client.Get(ctx, client.ObjectKeyFromObject(is), is); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return client.IgnoreNotFound(i.Client.Delete(ctx, is, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// stackPods have no right and no token, and of devices the hypervisor's alone.
func (i *Installation) stackPods(c configuration.Configuration) *appsv1.DaemonSet {
	labels := map[string]string{"app.kubernetes.io/name": StackName, partOf: vmlet}
	memory := resource.MustParse("512Mi") // a VMM that is asked is tried
	limits := corev1.ResourceList{corev1.ResourceMemory: memory}
	for _, device := range devicesOf(c) {
		limits[device] = resource.MustParse("1")
	}
	return &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: StackName, Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": StackName}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
					NodeSelector: c.Placement.NodeSelector, Tolerations: c.Placement.Tolerations, Affinity: c.Placement.Affinity,
					TerminationGracePeriodSeconds: new(int64(5)),
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: new(true), RunAsUser: new(int64(107)), RunAsGroup: new(int64(107)), FSGroup: new(int64(107)),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{{
						Name: contract.ContainerStack, Image: c.Stack.Launcher, ImagePullPolicy: c.ImagePullPolicy,
						Command: []string{"vmlet-shim", "pod", "--stack", cmp.Or(c.Stack.Name, "unnamed")},
						Resources: corev1.ResourceRequirements{
							Limits: limits, Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
						},
						SecurityContext: &corev1.SecurityContext{
							AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
							Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
						},
						VolumeMounts: []corev1.VolumeMount{
							{Name: contract.VolumeName, MountPath: contract.VolumePath}, {Name: "tmp", MountPath: "/tmp"},
						},
						TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
					}},
					ImagePullSecrets: c.ImagePullSecrets,
					Volumes: []corev1.Volume{
						{Name: contract.VolumeName, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
						{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("64Mi"))}}},
					},
				},
			},
		},
	}
}

// devicesOf are those without which the cluster's hypervisor runs no VM.
func devicesOf(c configuration.Configuration) (all []corev1.ResourceName) {
	name := cmp.Or(c.Hypervisor, spec.HypervisorKVM)
	if c.Hypervisor == "" && c.UseEmulation {
		name = spec.HypervisorEmulation
	}
	h, known := hypervisors.Registry().Get(name)
	if !known {
		return nil // of "auto" nobody knows which
	}
	for _, d := range h.DeviceRequests() {
		if !d.Optional {
			all = append(all, corev1.ResourceName(d.Resource))
		}
	}
	return all
}

// surveyed are changes of what nodes say of a stack's image.
func surveyed() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return e.Object.GetAnnotations()[contract.AnnotationStack] != "" },
		DeleteFunc: func(e event.DeleteEvent) bool { return e.Object.GetAnnotations()[contract.AnnotationStack] != "" },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetAnnotations()[contract.AnnotationStack] != e.ObjectNew.GetAnnotations()[contract.AnnotationStack]
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// stackReports are what nodes say of the stack's image, by the nodes' names.
type stackReports struct {
	wanted int32 // nodes that are to have a pod of it
	by     map[string]described.Report
	faults map[string]string // of what could not be read
}

// reports reads them from the Nodes.
func (i *Installation) reports(ctx context.Context) (stackReports, error) {
	r := stackReports{by: make(map[string]described.Report), faults: make(map[string]string)}
	var pods appsv1.DaemonSet
	if err := i.Client.Get(ctx, client.ObjectKey{Namespace: i.Namespace, Name: StackName}, &pods); err != nil {
		return r, client.IgnoreNotFound(err)
	}
	r.wanted = pods.Status.DesiredNumberScheduled
	var nodes corev1.NodeList
	if err := i.Client.List(ctx, &nodes); err != nil {
		return r, err
	}
	for n := range nodes.Items {
		text := nodes.Items[n].Annotations[contract.AnnotationStack]
		if text == "" {
			continue
		}
		report, err := described.Decode(text)
		if err != nil {
			r.faults[nodes.Items[n].Name] = "what the node says can't be read: " + err.Error()
			continue
		}
		r.by[nodes.Items[n].Name] = report
	}
	return r, nil
}

// status is that of a stack with an image of its own; nil: there is none.
func (r stackReports) status(s configuration.Stack) *kubevirtv1.VirtualizationStackStatus {
	if s.Launcher == "" {
		return nil
	}
	out := &kubevirtv1.VirtualizationStackStatus{Name: s.Name, Image: s.Launcher, Nodes: r.wanted}
	failed := make(map[string]string)
	for node, why := range r.faults {
		failed[node] = why
	}
	for _, node := range keys(r.by) {
		report := r.by[node]
		if report.Image != s.Launcher || report.Profile != cmp.Or(s.Name, "unnamed") {
			continue // another image's, which the node has not left yet
		}
		out.AnsweringNodes++
		if why := addReport(out, report); why != "" {
			failed[node] = why
		}
	}
	for _, node := range keys(failed) {
		if len(out.Failures) < maxFailures {
			out.Failures = append(out.Failures, kubevirtv1.VirtualizationStackFailure{Node: node, Reason: failed[node]})
		}
	}
	return out
}

func keys[T any](m map[string]T) []string {
	all := make([]string, 0, len(m))
	for key := range m {
		all = append(all, key)
	}
	slices.Sort(all)
	return all
}

// addReport counts a node's VMMs in, and returns why none of them works there.
func addReport(out *kubevirtv1.VirtualizationStackStatus, report described.Report) string {
	works := false
	var reasons []string
	if report.Error != "" {
		reasons = append(reasons, report.Error)
	}
	for _, f := range report.VMMs {
		at := slices.IndexFunc(out.VMMs, func(v kubevirtv1.VirtualizationStackVMM) bool { return v.Name == f.VMM.ID })
		if at < 0 {
			at = len(out.VMMs)
			out.VMMs = append(out.VMMs, kubevirtv1.VirtualizationStackVMM{Name: f.VMM.ID, Version: f.VMM.Version})
		}
		v := &out.VMMs[at]
		if f.Driver && v.Description == "" && f.Error == "" {
			if text, err := json.Marshal(f.VMM); err == nil {
				v.Description, v.Version = string(text), f.VMM.Version
			}
		}
		if f.Works() {
			works = true
			v.WorkingNodes++
		} else {
			reasons = append(reasons, f.Why())
		}
	}
	if works {
		return ""
	}
	return strings.Join(reasons, "; ")
}

// stackCondition says whether the stack's image runs VMs somewhere, and why not.
func stackCondition(s *kubevirtv1.VirtualizationStackStatus) kubevirtv1.Condition {
	out := kubevirtv1.Condition{Type: stackReady, Status: metav1.ConditionFalse, Reason: "NotAsked"}
	works := slices.ContainsFunc(s.VMMs, func(v kubevirtv1.VirtualizationStackVMM) bool { return v.WorkingNodes > 0 })
	switch {
	case works:
		out.Status, out.Reason = metav1.ConditionTrue, "Works"
		out.Message = fmt.Sprintf("VMs run in %s on %d of %d nodes", s.Image, int(s.AnsweringNodes)-len(s.Failures), s.Nodes)
	case s.AnsweringNodes > 0 || len(s.Failures) > 0:
		out.Reason = "RunsNoVMs"
		out.Message = fmt.Sprintf("no VM can run in %s: %s", s.Image, firstReason(s))
	default:
		out.Message = fmt.Sprintf("no node has asked %s yet: if this stays so, its container does not start, as it has no vmlet-shim of this release (kubectl -n vmlet describe pods -l app.kubernetes.io/name=%s), or no node has its devices", s.Image, StackName)
	}
	out.Message = out.Message[:min(len(out.Message), maxMessage)]
	return out
}

func firstReason(s *kubevirtv1.VirtualizationStackStatus) string {
	if len(s.Failures) == 0 {
		return "no VMM in it works"
	}
	return "node " + s.Failures[0].Node + ": " + s.Failures[0].Reason
}
