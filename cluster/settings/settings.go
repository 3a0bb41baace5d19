// Package settings reads the cluster's configuration from the KubeVirt object each time that
// something is decided by it, so that a change needs no restart. It must not know what is
// decided. Start reading at Configuration.
package settings

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
)

// Settings read the cluster's configuration. They may be used concurrently.
type Settings struct {
	// From is a cache of KubeVirt objects: it is asked for each VM that is admitted or started.
	From client.Reader
	// Namespace is where the KubeVirt object is that counts.
	Namespace string
}

// Configuration returns the cluster's configuration as it is now: the default if there is no
// KubeVirt object. A cache that has started does not fail.
func (s Settings) Configuration(ctx context.Context) (configuration.Configuration, error) {
	var all kubevirtv1.KubeVirtList
	if err := s.From.List(ctx, &all, client.InNamespace(s.Namespace)); err != nil {
		return configuration.Configuration{}, fmt.Errorf("reading the KubeVirt object: %w", err)
	}
	c, _ := configuration.From(Chosen(all.Items, s.Namespace))
	return c, nil
}

// Chosen returns the KubeVirt object that counts: the oldest of a namespace that is not being
// deleted. It is nil if there is none. Those of other namespaces are their users', who may have
// the right to make such objects there, and configure nothing.
func Chosen(all []kubevirtv1.KubeVirt, namespace string) *kubevirtv1.KubeVirt {
	var oldest *kubevirtv1.KubeVirt
	for n := range all {
		if all[n].Namespace == namespace && all[n].DeletionTimestamp == nil && (oldest == nil || older(&all[n], oldest) < 0) {
			oldest = &all[n]
		}
	}
	return oldest
}

// older is below 0 if a is the older one. Which of two of the same second counts is the same
// for every program that asks.
func older(a, b *kubevirtv1.KubeVirt) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name}))
}
