package cluster

import (
	"context"
	"fmt"
	"strings"
)

// MetricsServer tells the cluster what pods and nodes use of processors and memory: see
// [Cluster.StartMetricsServer].
const MetricsServer = "metrics-server"

// metricsPort is the first node's, where the API server finds it.
const metricsPort = 4443

// StartMetricsServer has the cluster serve the API metrics.k8s.io, by which autoscalers go and kubectl
// top works, and returns when it answers. It is built by test/setup metrics-server alone.
func (c *Cluster) StartMetricsServer(ctx context.Context) error {
	if err := c.programs.find(MetricsServer, MetricsServer); err != nil {
		return fmt.Errorf("no %s: run test/setup metrics-server", MetricsServer)
	}
	if err := c.StartComponent(ctx, MetricsServer); err != nil {
		return err
	}
	return c.ServeAPI(ctx, "metrics.k8s.io", "v1beta1", c.NodeAddress(), metricsPort)
}

// metricsArguments are those of [Node.arguments].
func (c *Cluster) metricsArguments() []string {
	config := c.path("etc/storage.kubeconfig") // an administrator's
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--kubelet-certificate-authority=" + c.path("pki/ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--cert-dir=" + c.path("lib/metrics-server"), fmt.Sprintf("--secure-port=%d", metricsPort),
		"--metric-resolution=10s", "--kubelet-request-timeout=5s", // the shortest that it takes
	}
}

// ServeAPI has the API server pass requests for a version of an API's group on to a server at an address, which
// need not be in a pod; its certificate is not checked.
func (c *Cluster) ServeAPI(ctx context.Context, group, version, address string, port int) error {
	err := c.Apply(ctx, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: kube-system}
spec: {ports: [{name: https, port: 443, targetPort: %[5]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: kube-system, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
endpoints: [{addresses: [%[4]s]}]
ports: [{name: https, port: %[5]d}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: %[3]s.%[2]s}
spec:
  service: {name: %[1]s, namespace: kube-system}
  group: %[2]s
  version: %[3]s
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 100
  versionPriority: 100
`, strings.ReplaceAll(group, ".", "-"), group, version, address, port))
	if err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "wait", "--for=condition=Available", "apiservice/"+version+"."+group, "--timeout=24h")
	return err
}
