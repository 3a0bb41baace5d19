package cluster

import (
	"context"
	"fmt"
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
	if err := c.Apply(ctx, c.metricsAPI()); err != nil {
		return err
	}
	if err := c.StartComponent(ctx, MetricsServer); err != nil {
		return err
	}
	_, err := c.Kubectl(ctx, "wait", "--for=condition=Available", "apiservice/v1beta1.metrics.k8s.io", "--timeout=24h")
	return err
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

// metricsAPI is served on the node itself, without a pod.
func (c *Cluster) metricsAPI() string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: metrics-server, namespace: kube-system}
spec: {ports: [{name: https, port: 443, targetPort: %[1]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: metrics-server, namespace: kube-system, labels: {kubernetes.io/service-name: metrics-server}}
addressType: IPv4
endpoints: [{addresses: [%[2]s]}]
ports: [{name: https, port: %[1]d}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  service: {name: metrics-server, namespace: kube-system}
  group: metrics.k8s.io
  version: v1beta1
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 100
  versionPriority: 100
`, metricsPort, c.NodeAddress())
}
