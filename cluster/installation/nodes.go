package installation

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/settings"
	"github.com/vmlet/vmlet/contract"
)

// tellNodes writes what the KubeVirt object says to nodes where their agents read it. Agents restart
// when it changes, so it is written only then.
func (i *Installation) tellNodes(ctx context.Context) error {
	var all kubevirtv1.KubeVirtList
	if err := i.Client.List(ctx, &all); err != nil {
		return err
	}
	c, _ := configuration.From(settings.Chosen(all.Items))
	content, err := c.Nodes.Marshal()
	if err != nil {
		return fmt.Errorf("writing the nodes' configuration: %w", err)
	}
	want := map[string]string{contract.ClusterFile: string(content)}
	is := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: contract.ConfigMapCluster, Labels: map[string]string{partOf: vmlet}}}
	err = i.Live.Get(ctx, client.ObjectKeyFromObject(is), is)
	switch {
	case apierrors.IsNotFound(err) && reflect.ValueOf(c.Nodes).IsZero():
		return nil
	case apierrors.IsNotFound(err):
		is.Data = want
		err = i.Client.Create(ctx, is)
	case err == nil && maps.Equal(is.Data, want):
		return nil
	case err == nil:
		is.Data, is.BinaryData = want, nil
		err = i.Client.Update(ctx, is)
	}
	if err != nil {
		return fmt.Errorf("writing the nodes' configuration: %w", err)
	}
	i.Log.Info("nodes' configuration written", "configmap", is.Name)
	return nil
}
