package metrics_test

import (
	"context"
	"errors"
	"flag"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/vmlet/vmlet/agent/metrics"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

var update = flag.Bool("update", false, "write the golden files")

// start makes metrics whose VMMs are asked no more when the test ends.
func start(t testing.TB, s metrics.Sources) *metrics.Metrics {
	ctx, cancel := context.WithCancel(context.Background())
	m := metrics.New(ctx, s)
	t.Cleanup(func() {
		cancel()
		m.Wait()
	})
	return m
}

// scrape is what a Prometheus gets.
func scrape(t testing.TB, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// settled scrapes until every VMM that will answer has.
func settled(t testing.TB, m *metrics.Metrics, answers int) string {
	t.Helper()
	for {
		text := scrape(t, m)
		if strings.Count(text, "vmlet_vm_sampled_timestamp_seconds{") >= answers {
			return text
		}
		runtime.Gosched()
	}
}

// own are the lines that are vmlet's, without what changes by itself.
func own(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if strings.HasPrefix(line, "vmlet_vm_sampled_timestamp_seconds{") {
			line, _, _ = strings.Cut(line, "} ")
			line += "} WHEN\n"
		}
		if strings.HasPrefix(line, `vmlet_vmm_samples_total{outcome="answered"}`) {
			line = `vmlet_vmm_samples_total{outcome="answered"} SOME` + "\n"
		}
		if strings.HasPrefix(line, "vmlet_build_info{") {
			line = strings.NewReplacer(runtime.Version(), "GO", runtime.GOARCH, "ARCH").Replace(line)
		}
		if strings.HasPrefix(name, "vmlet_") || strings.HasPrefix(name, "kubevirt_") {
			out.WriteString(line)
		}
	}
	return out.String()
}

func everything(t testing.TB, unified bool) metrics.Sources {
	full := web()
	full.Sampler = &sampler{answer: webSample()}
	return sources(machine(t, unified), full, plain(),
		idle("made", "33333333-3333-4333-8333-333333333333", nodev1.State_STATE_CREATED),
		idle("slept", "44444444-4444-4444-8444-444444444444", nodev1.State_STATE_SAVED))
}

func TestGoldenScrape(t *testing.T) {
	for name, unified := range map[string]bool{"cgroup-v1": false, "cgroup-v2": true} {
		t.Run(name, func(t *testing.T) {
			got := own(settled(t, start(t, everything(t, unified)), 1))
			path := filepath.Join("testdata", name+".prom")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs; go test -update writes it anew:\n%s", path, firstDifference(got, string(want)))
			}
		})
	}
}

func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return "got  " + a[i] + "\nwant " + b[i]
		}
	}
	return "one is longer"
}

// TestBothCgroupVersionsSayTheSame holds the golden files to each other: the
// made-up machines differ in nothing else.
func TestBothCgroupVersionsSayTheSame(t *testing.T) {
	v1 := own(settled(t, start(t, everything(t, false)), 1))
	v2 := own(settled(t, start(t, everything(t, true)), 1))
	if v1 != v2 {
		t.Error(firstDifference(v1, v2))
	}
}

// TestLint holds a whole scrape, with Go's and the process' metrics, to
// Prometheus' conventions.
func TestLint(t *testing.T) {
	text := settled(t, start(t, everything(t, true)), 1)
	for _, want := range []string{"go_goroutines ", "process_resident_memory_bytes "} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no %s", want)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestEveryMetricIsScraped: what is listed and what is sent are the same.
func TestEveryMetricIsScraped(t *testing.T) {
	m := start(t, everything(t, true))
	text := own(settled(t, m, 1))
	listed := map[string]bool{}
	for _, metric := range m.All() {
		listed[metric.Name] = true
		if !strings.Contains(text, "# TYPE "+metric.Name+" "+metric.Type+"\n") {
			t.Errorf("%s, a %s, is listed and not scraped", metric.Name, metric.Type)
		}
	}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok && !listed[strings.Fields(rest)[0]] {
			t.Errorf("%s is scraped and not listed", rest)
		}
	}
}

// TestNothingKnown: sources that have nothing to say cost nothing and say nothing.
func TestNothingKnown(t *testing.T) {
	s := everything(t, true)
	s.Document, s.Probes, s.Devices, s.Outcomes, s.RAM, s.Saves, s.Restores = nil, nil, nil, nil, nil, nil, nil
	text := own(scrape(t, start(t, s)))
	for _, absent := range []string{"vmlet_hypervisor_state", "vmlet_capability_probes_total", "vmlet_device_plugin_devices", "vmlet_ram_mount_size_bytes"} {
		if strings.Contains(text, absent) {
			t.Errorf("%s is there", absent)
		}
	}
	s.Document = func() *capabilitiesv1.Capabilities { return nil }
	scrape(t, start(t, s))
}

// TestOddVMs: none of them costs the others their metrics.
func TestOddVMs(t *testing.T) {
	odd := []metrics.VM{web(), web(), {Record: &nodev1.VirtualMachine{}}, {Record: nil}}
	wild := web()
	wild.Record.Id, wild.Name, wild.Pod, wild.Threads.VCPU = "x", strings.Repeat("\xff", 1000), "\xff\"\n", "("
	wild.Record.Status.EffectiveSpec.Memory.Size = "much"
	wild.Record.Status.EffectiveSpec.Disks = nil
	failing := plain()
	failing.Name, failing.Record.Id = "failing", "y"
	failing.Sampler = &sampler{err: errors.New("made up")}
	m := start(t, sources(machine(t, true), append(odd, wild, failing)...))
	for range 2 {
		text := own(scrape(t, m))
		if n := strings.Count(text, `kubevirt_vmi_cpu_usage_seconds_total{name="web",namespace="shop",node="node-1"} `); n != 1 {
			t.Fatalf("%d times:\n%s", n, text)
		}
		if !strings.Contains(text, `name="failing"`) || strings.Contains(text, "vmlet_vm_sampled_timestamp_seconds{") {
			t.Fatal(text)
		}
	}
}
