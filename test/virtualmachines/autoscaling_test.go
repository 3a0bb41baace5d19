package virtualmachines_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// autoscalingPart waits for a minute and more at a time until something was measured: it runs where everything does, and
// where it is named.
const autoscalingPart = "autoscaling"

// testAutoscaling: Kubernetes' HorizontalPodAutoscaler scales a pool by what its VMs' pods take of processors, as
// metrics-server says, and by a metric that somebody else serves.
func (v *installed) testAutoscaling(t *testing.T) {
	must(t, v.StartMetricsServer(v.ctx))
	p := v.newPool(t, "web")
	p.Spec.Replicas = new(int32(1))
	v.create(t, p)
	v.available(t, "web", 1)

	v.scaledBy(t, 2, `{type: Resource, resource: {name: cpu, target: {type: AverageValue, averageValue: 1m}}}`) // a guest that idles takes more
	v.scaledBy(t, 1, `{type: Resource, resource: {name: cpu, target: {type: AverageValue, averageValue: "64"}}}`)
	load := v.serveCustomMetric(t)
	custom := `{type: Pods, pods: {metric: {name: requests}, target: {type: AverageValue, averageValue: "10"}}}`
	load.Store(20)
	v.scaledBy(t, 2, custom)
	load.Store(1)
	v.scaledBy(t, 1, custom)

	v.kubectl(t, "delete", "hpa/web", "-n", guests)
	v.kubectl(t, "delete", "vmpool", "web", "-n", guests)
	for _, name := range []string{"web-0", "web-1"} {
		v.noMachine(t, name)
	}
}

// scaledBy has the pool scaled to so many VMs, by a metric.
func (v *installed) scaledBy(t *testing.T, n int32, metric string) {
	t.Helper()
	must(t, v.Apply(v.ctx, fmt.Sprintf(`
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: %s}
spec:
  scaleTargetRef: {apiVersion: pool.kubevirt.io/v1beta1, kind: VirtualMachinePool, name: web}
  minReplicas: 1
  maxReplicas: 2
  metrics: [%s]
  behavior: {scaleDown: {stabilizationWindowSeconds: 0}}
`, guests, metric)))
	v.eventually(t, func() bool {
		return v.kubectl(t, "get", "vmpool/web", "-n", guests, "-o", "jsonpath={.spec.replicas}") == fmt.Sprint(n)
	}, func() string {
		return fmt.Sprintf("by %s the pool is not scaled to %d: %s", metric, n, v.kubectl(t, "describe", "hpa/web", "-n", guests))
	})
	v.available(t, "web", n)
}

// serveCustomMetric serves the metric "requests" of every pod in custom.metrics.k8s.io, as an adapter of Prometheus
// would; what is stored is each pod's.
func (v *installed) serveCustomMetric(t *testing.T) *atomic.Int64 {
	t.Helper()
	load := &atomic.Int64{}
	const group = "/apis/custom.metrics.k8s.io/v1beta2"
	answer := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var body any = metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: "custom.metrics.k8s.io/v1beta2",
			APIResources: []metav1.APIResource{{Name: "pods/requests", Namespaced: true, Kind: "MetricValueList", Verbs: metav1.Verbs{"get"}}},
		}
		if rest, of := strings.CutPrefix(r.URL.Path, group+"/namespaces/"+guests+"/pods/"); of && rest == "*/requests" {
			body = v.requestsOfPods(r.URL.Query().Get("labelSelector"), load.Load())
		}
		if err := json.NewEncoder(w).Encode(body); err != nil {
			t.Error(err)
		}
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(answer))
	listener, err := net.Listen("tcp", net.JoinHostPort(v.MachineAddress(), "0"))
	must(t, err)
	server.Listener.Close()
	server.Listener = listener
	server.StartTLS()
	t.Cleanup(server.Close)
	t.Cleanup(func() { // an API that nobody serves any more would keep namespaces from being deleted
		v.kubectl(t, "delete", "apiservice/v1beta2.custom.metrics.k8s.io")
	})
	must(t, v.ServeAPI(v.ctx, "custom.metrics.k8s.io", "v1beta2", v.MachineAddress(), listener.Addr().(*net.TCPAddr).Port))
	return load
}

// requestsOfPods is a MetricValueList of the pods that a selector finds.
func (v *installed) requestsOfPods(selector string, load int64) any {
	chosen, err := labels.Parse(selector)
	var pods corev1.PodList
	if err == nil {
		err = v.api.List(v.ctx, &pods, client.InNamespace(guests), client.MatchingLabelsSelector{Selector: chosen})
	}
	if err != nil {
		return metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
	}
	items := make([]any, len(pods.Items))
	for i, pod := range pods.Items {
		items[i] = map[string]any{
			"describedObject": map[string]any{"kind": "Pod", "namespace": guests, "name": pod.Name, "apiVersion": "v1"},
			"metric":          map[string]any{"name": "requests"},
			"timestamp":       metav1.Now(),
			"value":           fmt.Sprint(load),
		}
	}
	return map[string]any{"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "metadata": map[string]any{}, "items": items}
}
