package kubernetes_test

import (
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/test/guest"
)

// testMetrics: the VM of a pod is measured under its pod's name, and its container's
// cgroup is seen from the agent's.
func (d *deployment) testMetrics(t *testing.T) {
	p := d.guestPod("measured", "plain.yaml")
	d.createVMs(t, p)
	d.counted(t, p, 3)
	series := func(name, more string) *regexp.Regexp {
		return regexp.MustCompile(`(?m)^` + name + `\{` + more + `name="measured",namespace="` + p.in() + `",node="[^"]+"[^}]*\} [1-9]`)
	}
	want := []*regexp.Regexp{
		series("kubevirt_vmi_cpu_usage_seconds_total", ""), series("kubevirt_vmi_vcpu_seconds_total", `id="0",`),
		series("kubevirt_vmi_memory_resident_bytes", ""), series("kubevirt_vmi_memory_domain_bytes", ""), series("kubevirt_vmi_info", ""),
		series("vmlet_vm_memory_charged_bytes", ""), series("vmlet_vm_sampled_timestamp_seconds", ""),
	}
	var text string
	d.eventually(t, func() bool {
		text = d.fetch(t, 8080, "/metrics")
		for _, series := range want {
			if !series.MatchString(text) {
				return false
			}
		}
		return true
	}, func() string {
		var missing []string
		for _, series := range want {
			if !series.MatchString(text) {
				missing = append(missing, series.String())
			}
		}
		return "not scraped: " + strings.Join(missing, "\n")
	})
	if promtool, err := guest.Cached("promtool"); err == nil {
		lint := exec.Command(promtool, "check", "metrics")
		lint.Stdin = strings.NewReader(text)
		if out, err := lint.CombinedOutput(); err != nil {
			t.Errorf("promtool check metrics: %v\n%s", err, out)
		}
	}
	if ready := d.fetch(t, 8082, "/readyz?verbose"); !strings.Contains(ready, "[+]device-plugins ok") {
		t.Errorf("readyz says %s", ready)
	}
	d.deleteVMs(t, p)
	d.eventually(t, func() bool { return !strings.Contains(d.fetch(t, 8080, "/metrics"), `name="measured"`) },
		func() string { return "a VM is measured whose pod is gone" })
}

// fetch gets a page of the node's agent.
func (d *deployment) fetch(t *testing.T, port int, path string) string {
	t.Helper()
	address, err := d.Address(d.ctx, d.agent(t), port)
	must(t, err)
	r, err := http.Get("http://" + address + path)
	must(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	must(t, err)
	if r.StatusCode != http.StatusOK {
		t.Errorf("%s: %d %s", path, r.StatusCode, text)
	}
	return string(text)
}
