package kubernetes_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/suites"
)

// testEndpoints: what Prometheus and the kubelet ask the agent, and what nobody
// may from outside.
func (d *deployment) testEndpoints(t *testing.T) {
	p := d.guestPod("measured", "plain.yaml")
	d.createVMs(t, p)
	d.counted(t, p, 3)
	agent := d.agent(t)
	at := func(port int) string {
		address, err := d.Address(d.ctx, agent, port)
		must(t, err)
		return address
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		var code int
		var body string
		d.eventually(t, func() bool { // a check fails for a moment where the machine is busy
			code, body = d.get(t, at(8082), path)
			return code == http.StatusOK
		}, func() string { return fmt.Sprintf("%s: %d %s", path, code, body) })
	}
	d.lintMetrics(t, at(8080), p)

	if conn, err := net.Dial("tcp", at(8081)); err == nil {
		conn.Close()
		t.Error("the debug pages can be reached from another machine")
	}
	for _, port := range []int{8080, 8082} {
		for _, path := range []string{"/debug/vms", "/debug/pprof/"} {
			if code, _ := d.get(t, at(port), path); code != http.StatusNotFound {
				t.Errorf("port %d has %s: %d", port, path, code)
			}
		}
	}
	forwarded, stop, err := d.Forward(d.ctx, agent, 8081)
	must(t, err)
	defer stop()
	if code, body := d.get(t, forwarded, "/debug/vms"); code != http.StatusOK || !strings.Contains(body, `"name": "measured"`) && !strings.Contains(body, `"name":"measured"`) {
		t.Errorf("/debug/vms: %d %s", code, body)
	}
	d.deleteVMs(t, p)
}

// lintMetrics scrapes, and looks for the VM in what comes.
func (d *deployment) lintMetrics(t *testing.T, address string, p vmPod) {
	t.Helper()
	var text string
	var families map[string]*dto.MetricFamily
	scrape := func() {
		var code int
		if code, text = d.get(t, address, "/metrics"); code != http.StatusOK {
			t.Fatalf("/metrics: %d %s", code, text)
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		var err error
		families, err = parser.TextToMetricFamilies(strings.NewReader(text))
		must(t, err)
	}
	labels := map[string]string{"namespace": p.in(), "name": p.name, "node": cluster.NodeName}
	value := func(family string) (float64, bool) {
		for _, m := range families[family].GetMetric() {
			has := make(map[string]string)
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			fits := true
			for k, v := range labels {
				fits = fits && has[k] == v
			}
			if fits {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue(), true
			}
		}
		return 0, false
	}
	const cpu, memory = "kubevirt_vmi_cpu_usage_seconds_total", "vmlet_vm_memory_charged_bytes"
	var before, after float64
	d.eventually(t, func() bool { // CPU time moves
		scrape()
		before = after
		after, _ = value(cpu)
		return before > 0 && after > before
	}, func() string { return fmt.Sprintf("%s of %v is %v:\n%.4000s", cpu, labels, after, text) })
	if charged, there := value(memory); !there || charged < 1<<20 {
		t.Errorf("%s of %v is %v", memory, labels, charged)
	}
	if one, there := value("kubevirt_vmi_info"); !there || one != 1 {
		t.Errorf("kubevirt_vmi_info of %v is not there; there are %q", labels, slices.Sorted(maps.Keys(families)))
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	must(t, err)
	for _, p := range problems {
		if !strings.HasPrefix(p.Metric, "kubevirt_vmi_") { // named by KubeVirt
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func (d *deployment) get(t *testing.T, address, path string) (code int, body string) {
	t.Helper()
	ctx, cancel := suites.Wait(d.ctx, t, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	must(t, err)
	request.Host = "localhost" // as it is for who forwards a port to there
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	must(t, err)
	return answer.StatusCode, string(content)
}
