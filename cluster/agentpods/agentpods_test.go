package agentpods

import (
	"crypto/tls"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/contract"
)

// TestCaller: an agent is one of vmlet's own namespace, on the node, that serves the API.
func TestCaller(t *testing.T) {
	pod := func(namespace, name, node, port string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{labelName: contract.AccountAgent}},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: port, ContainerPort: 8083}}}}},
			Status:     corev1.PodStatus{PodIP: "10.0.0.1"},
		}
	}
	ended := pod("vmlet", "ended", "three", contract.NodeAPIPort)
	ended.Status.Phase = corev1.PodFailed
	live := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(
		pod("vmlet", "good", "one", contract.NodeAPIPort), pod("vmlet", "without", "two", "metrics"), ended,
		pod("guests", "foreign", "four", contract.NodeAPIPort),
	).WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
	c := &Caller{Live: live, Namespace: "vmlet", Connections: nodes.NewConnections(new(tls.Config))}
	for node, want := range map[string]bool{"one": true, "two": false, "three": false, "four": false, "five": false} {
		agent, done, err := c.Client(t.Context(), node, "uid")
		if err == nil {
			done()
		} else if !strings.Contains(err.Error(), "node "+node+" has no vmlet-agent that is ready") {
			t.Errorf("%s: %v", node, err)
		}
		if (agent != nil) != want {
			t.Errorf("%s: %v, want an agent: %v", node, err, want)
		}
	}
}
