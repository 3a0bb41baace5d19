package claimwatch

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// recordName is the ConfigMap with the record, and recordKey its key there.
const (
	recordName = "vmlet-watched-claims"
	recordKey  = "record.json"
)

// markAnnotation is what Mark writes on the program's own pod.
const markAnnotation = "vmlet.io/pods-seen"

// page is how many pods are read at once: each may have 1.5 MB.
const page = 20

// Kubernetes is the API server, as API.
type Kubernetes struct {
	Core corev1client.CoreV1Interface
	// Namespace and Pod are this program's.
	Namespace, Pod string
}

// Position implements API.
func (k Kubernetes) Position(ctx context.Context) (string, error) {
	list, err := k.Core.Pods("").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	return list.ResourceVersion, nil
}

// Watch implements API.
func (k Kubernetes) Watch(ctx context.Context, from string) (watch.Interface, error) {
	return k.Core.Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true})
}

// Pods implements API. All pages are of the same moment.
func (k Kubernetes) Pods(ctx context.Context, namespace string, each func(*corev1.Pod)) error {
	for next := ""; ; {
		list, err := k.Core.Pods(namespace).List(ctx, metav1.ListOptions{Limit: page, Continue: next})
		if err != nil {
			return err
		}
		for i := range list.Items {
			each(&list.Items[i])
		}
		if next = list.Continue; next == "" {
			return nil
		}
	}
}

// Claim implements API.
func (k Kubernetes) Claim(ctx context.Context, claim types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
	return k.Core.PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
}

// Mark implements API.
func (k Kubernetes) Mark(ctx context.Context, mark string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{markAnnotation: mark}}})
	if err == nil {
		_, err = k.Core.Pods(k.Namespace).Patch(ctx, k.Pod, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	return err
}

// Marked implements API.
func (k Kubernetes) Marked(p *corev1.Pod) string {
	if p.Namespace != k.Namespace || p.Name != k.Pod {
		return ""
	}
	return p.Annotations[markAnnotation]
}

// Read implements API.
func (k Kubernetes) Read(ctx context.Context) (text, version string, err error) {
	m, err := k.Core.ConfigMaps(k.Namespace).Get(ctx, recordName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	return m.Data[recordKey], m.ResourceVersion, nil
}

// Write implements API. A record that somebody has deleted is made again.
func (k Kubernetes) Write(ctx context.Context, text, version string) (next string, err error) {
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: recordName, ResourceVersion: version},
		Data:       map[string]string{recordKey: text},
	}
	if version != "" {
		m, err = k.Core.ConfigMaps(k.Namespace).Update(ctx, m, metav1.UpdateOptions{})
	}
	if version == "" || apierrors.IsNotFound(err) {
		m = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: recordName}, Data: map[string]string{recordKey: text}}
		m, err = k.Core.ConfigMaps(k.Namespace).Create(ctx, m, metav1.CreateOptions{})
	}
	if err != nil {
		return "", err
	}
	return m.ResourceVersion, nil
}
