package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/convert"
)

// limited says in the input which limits its namespace wants of pods: a ResourceQuota on
// limits refuses pods without them. Namespaces are read from the API server, as the cache has
// vmlet's alone.
func limited(ctx context.Context, cached, live client.Reader, in *convert.Input) error {
	namespace := in.Instance.Namespace
	var quotas corev1.ResourceQuotaList
	if err := cached.List(ctx, &quotas, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("reading the quotas of namespace %s: %w", namespace, err)
	}
	for i := range quotas.Items {
		_, cpu := quotas.Items[i].Spec.Hard[corev1.ResourceLimitsCPU]
		_, memory := quotas.Items[i].Spec.Hard[corev1.ResourceLimitsMemory]
		in.LimitCPU, in.LimitMemory = in.LimitCPU || cpu, in.LimitMemory || memory
	}
	if in.LimitCPU || in.Configuration.LimitedNamespaces == nil {
		return nil
	}
	selected, err := selects(ctx, live, in.Configuration, namespace)
	in.LimitCPU = selected
	return err
}

func selects(ctx context.Context, live client.Reader, c configuration.Configuration, name string) (bool, error) {
	var namespace corev1.Namespace
	if err := live.Get(ctx, types.NamespacedName{Name: name}, &namespace); err != nil {
		return false, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(c.LimitedNamespaces)
	return err == nil && selector.Matches(labels.Set(namespace.Labels)), err
}
