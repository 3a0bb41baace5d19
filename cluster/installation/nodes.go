package installation

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/contract"
)

// tellNodes writes what the KubeVirt object says to nodes where their agents read it. Agents restart
// when it changes, so it is written only then.
func (i *Installation) tellNodes(ctx context.Context, c configuration.Configuration) error {
	content, err := c.Nodes.Marshal()
	if err != nil {
		return fmt.Errorf("writing the nodes' configuration: %w", err)
	}
	want := map[string]string{contract.ClusterFile: string(content)}
	is := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: contract.ConfigMapCluster, Labels: map[string]string{partOf: vmlet}}}
	err = i.Live.Get(ctx, client.ObjectKeyFromObject(is), is)
	there := err == nil
	switch {
	case client.IgnoreNotFound(err) != nil:
		return err
	case there && maps.Equal(is.Data, want), !there && reflect.ValueOf(c.Nodes).IsZero():
		return nil
	}
	is.Data, is.BinaryData = want, nil
	return i.write(ctx, is, there)
}
