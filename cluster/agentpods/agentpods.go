// Package agentpods finds nodes' agents by their pods. It must not know what they are asked.
// Start reading at Endpoints.
package agentpods

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// labelName is the label by which an agent's pod is known.
const labelName = "app.kubernetes.io/name"

// Is reports whether a pod of vmlet's namespace is an agent.
func Is(p *corev1.Pod) bool { return p.Labels[labelName] == contract.AccountAgent }

// Endpoints are the agents' by their nodes. While a node's agent is being replaced there are two
// pods: the younger one counts.
func Endpoints(pods iter.Seq[*corev1.Pod]) map[string]nodes.Endpoint {
	youngest := make(map[string]*corev1.Pod)
	for p := range pods {
		if !serves(p) {
			continue
		}
		if other := youngest[p.Spec.NodeName]; other == nil || older(other, p) {
			youngest[p.Spec.NodeName] = p
		}
	}
	all := make(map[string]nodes.Endpoint)
	for node, p := range youngest {
		all[node] = nodes.Endpoint{Address: net.JoinHostPort(p.Status.PodIP, strconv.Itoa(int(apiPort(p))))}
	}
	return all
}

// serves reports whether an agent's pod can be reached.
func serves(p *corev1.Pod) bool {
	ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	return !ended && p.Spec.NodeName != "" && p.Status.PodIP != "" && apiPort(p) != 0
}

func older(a, b *corev1.Pod) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID)) < 0
}

func apiPort(p *corev1.Pod) int32 {
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == contract.NodeAPIPort {
				return port.ContainerPort
			}
		}
	}
	return 0
}

// Caller calls nodes' agents, each found when it is called.
type Caller struct {
	// Live reads from the API server.
	Live        client.Reader
	Namespace   string
	Connections *nodes.Connections
}

// Client calls the agent of a node about the VM of a pod. done is to be called when nothing is called any more.
func (c *Caller) Client(ctx context.Context, node string, pod types.UID) (agent nodev1.NodeServiceClient, done func(), err error) {
	var pods corev1.PodList
	if err := c.Live.List(ctx, &pods, client.InNamespace(c.Namespace),
		client.MatchingLabels{labelName: contract.AccountAgent}, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, nil, fmt.Errorf("looking for the agent of node %s: %w", node, err)
	}
	endpoint, has := Endpoints(func(yield func(*corev1.Pod) bool) {
		for i := range pods.Items {
			if !yield(&pods.Items[i]) {
				return
			}
		}
	})[node]
	if !has {
		return nil, nil, fmt.Errorf("node %s has no vmlet-agent that is ready: see kubectl get pods -n %s -o wide --field-selector spec.nodeName=%s", node, c.Namespace, node)
	}
	return c.Connections.Client(node, endpoint, pod)
}
