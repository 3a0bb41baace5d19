package controller

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/cluster/certificates"
	"github.com/vmlet/vmlet/cluster/installation"
	"github.com/vmlet/vmlet/cluster/machine"
	"github.com/vmlet/vmlet/contract"
)

// cacheOptions bound what the cache holds: VMs' pods, those that attach volumes to them or fill
// claims and those of vmlet's namespace, the ControllerRevisions that keep instancetypes and
// preferences, the Deployments and DaemonSets of that namespace, and of what has no namespace
// vmlet's own. Of KubeVirt objects those of the configuration's namespace are whole.
func cacheOptions(namespace, configuration string) cache.Options {
	here := map[string]cache.Config{namespace: {}}
	webhooks := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, installation.ConfigurationName)}
	ofVMs, err := labels.NewRequirement(contract.LabelApp, selection.In, []string{contract.LabelAppLauncher, contract.LabelAppAttachment, contract.LabelAppImporter})
	if err != nil {
		panic(err) // they are a label and its values
	}
	ofTypes, err := labels.NewRequirement(contract.LabelObjectKind, selection.Exists, nil)
	if err != nil {
		panic(err) // it is a label
	}
	return cache.Options{
		// Who owns which field of an object is half of its size, and is never read.
		DefaultTransform: leanOthers,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Transform: leanPod, Namespaces: map[string]cache.Config{
				namespace: {}, cache.AllNamespaces: {LabelSelector: labels.NewSelector().Add(*ofVMs)},
			}},
			&corev1.PersistentVolumeClaim{}:                {Transform: leanClaim},
			&kubevirtv1.KubeVirt{}:                         {Transform: leanKubeVirt(configuration)},
			&kubevirtv1.VirtualMachine{}:                   {Transform: leanMachine},
			&kubevirtv1.VirtualMachineInstance{}:           {Transform: leanMachine},
			&kubevirtv1.VirtualMachineInstanceReplicaSet{}: {Transform: leanMachine},
			&poolv1.VirtualMachinePool{}:                   {Transform: leanMachine},
			&corev1.Namespace{}:                            {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, namespace)},
			&appsv1.ControllerRevision{}:                   {Label: labels.NewSelector().Add(*ofTypes)},
			&appsv1.Deployment{}:                           {Namespaces: here},
			&appsv1.DaemonSet{}:                            {Namespaces: here},
			&admissionv1.MutatingWebhookConfiguration{}:    webhooks,
			&admissionv1.ValidatingWebhookConfiguration{}:  webhooks,
			&certificatesv1.CertificateSigningRequest{}:    certificates.Requests(),
			installation.Definition():                      {Transform: namesAndLabels},
			installation.APIService():                      {Label: installation.Own()},
		},
	}
}

// clientOptions have the client read objects without types from the cache, too: DataVolumes, which
// are followed. What is read of other such kinds is read live, and so are instancetypes and preferences:
// a VM reads them once, and anyone who makes them may make large ones.
func clientOptions() client.Options {
	return client.Options{Cache: &client.CacheOptions{Unstructured: true, DisableFor: machine.Uncached()}}
}

// namesAndLabels leaves of a definition what is read: clusters have hundreds, and kubectl apply
// keeps a copy of each in an annotation.
func namesAndLabels(o any) (any, error) {
	if d, is := o.(*metav1.PartialObjectMetadata); is {
		d.ManagedFields, d.Annotations = nil, nil
	}
	return o, nil
}
