package admission

import (
	"context"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// evictions decides on evictions of pods. Where it can't find out what a VM's strategy is, the
// eviction passes: a drain must not depend on vmlet.
type evictions struct {
	client client.Client
	config Configurations
	now    func() time.Time
}

func (e *evictions) Handle(ctx context.Context, request admission.Request) admission.Response {
	pod := &corev1.Pod{}
	err := e.client.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: request.Name}, pod)
	if err != nil {
		return failOpen(err, "its pod")
	}
	dryRun := request.DryRun != nil && *request.DryRun
	if pod.Labels[contract.LabelAttachedTo] != "" {
		return e.attachment(ctx, pod, dryRun)
	}
	instance, allowed := e.instance(ctx, pod)
	if instance == nil {
		return allowed
	}
	strategy, err := e.strategy(ctx, instance)
	switch {
	case err == nil && strategy == kubevirtv1.EvictionHibernate:
		return e.hibernate(ctx, pod, instance, dryRun)
	case instance.Spec.StopStrategy != "" && refusal(strategy) == "":
		return e.hold(ctx, eviction{pod: pod, instance: instance, dryRun: dryRun})
	case err != nil:
		return failOpen(err, "the cluster's evictionStrategy")
	}
	text := refusal(strategy)
	if text == "" {
		return admission.Allowed("")
	}
	denied := tooManyRequests(fmt.Sprintf(text, instance.Namespace, instance.Name))
	if strategy == kubevirtv1.EvictionExternal && !dryRun {
		// The strategy is known: that the node could not be noted lets no VM be ended.
		if err := e.noteNode(ctx, instance, pod.Spec.NodeName); err != nil {
			return denied.WithWarnings(fmt.Sprintf("vmlet: evacuationNodeName of the VirtualMachineInstance was not set: %v", err))
		}
	}
	return denied
}

// instance returns the instance whose guest runs in a pod. It is nil where the eviction is allowed,
// as there is none, or it ends anyway.
func (e *evictions) instance(ctx context.Context, pod *corev1.Pod) (*kubevirtv1.VirtualMachineInstance, admission.Response) {
	owner := metav1.GetControllerOf(pod)
	if pod.Labels[contract.LabelApp] != contract.LabelAppLauncher || owner == nil || ending(pod) {
		return nil, admission.Allowed("")
	}
	instance := &kubevirtv1.VirtualMachineInstance{}
	if err := e.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, instance); err != nil {
		return nil, failOpen(err, "its VirtualMachineInstance")
	}
	if instance.UID != owner.UID || instance.DeletionTimestamp != nil {
		return nil, admission.Allowed("")
	}
	return instance, admission.Response{}
}

// ending reports whether a pod has ended, or is going to anyway.
func ending(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// strategy is the instance's own, or else the cluster's.
func (e *evictions) strategy(ctx context.Context, instance *kubevirtv1.VirtualMachineInstance) (kubevirtv1.EvictionStrategy, error) {
	if s := instance.Spec.EvictionStrategy; s != nil {
		return *s, nil
	}
	c, err := e.config.Configuration(ctx)
	return c.EvictionStrategy, err
}

// refusal says, with the instance's namespace and name left open, why a pod is not evicted; empty:
// it is, and its guest shuts down. No VM can be migrated yet: one that migrates if possible is
// evicted. Deschedulers know by the beginning of KubeVirt's texts whether somebody moves the VM.
func refusal(s kubevirtv1.EvictionStrategy) string {
	switch s {
	case kubevirtv1.EvictionLiveMigrate:
		return "VMI %[2]s is configured with an eviction strategy but is not live-migratable, as VMs can't be migrated yet: stop the VM, or set evictionStrategy: None to have it shut down"
	case kubevirtv1.EvictionExternal:
		return "Eviction triggered evacuation of VMI %s/%s: its evictionStrategy is External: wait for the controller that manages the VM to move it, or stop the VM"
	}
	return ""
}

// noteNode writes the node that is to be left into the instance's status: anyone who moves VMs
// with the strategy External waits for it.
func (e *evictions) noteNode(ctx context.Context, instance *kubevirtv1.VirtualMachineInstance, node string) error {
	if instance.Status.EvacuationNodeName == node {
		return nil
	}
	patch := client.MergeFrom(instance.DeepCopy())
	instance.Status.EvacuationNodeName = node
	return client.IgnoreNotFound(e.client.Status().Patch(ctx, instance, patch))
}

// tooManyRequests denies an eviction: clients that drain try again after a 429.
func tooManyRequests(message string) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Result: &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
			Message: message,
		},
	}}
}

// failOpen allows an eviction about which something could not be read.
func failOpen(err error, what string) admission.Response {
	if apierrors.IsNotFound(err) {
		return admission.Allowed("")
	}
	return admission.Allowed("").WithWarnings(fmt.Sprintf("vmlet: the pod is evicted, as %s could not be read: %v", what, err))
}
