package e2e

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"golang.org/x/sys/unix"
)

const endpointsConfig = `endpoints:
  metrics: {address: "127.0.0.1:0"}
  debug: {address: "127.0.0.1:0"}
  health: {address: "127.0.0.1:0"}
`

// endpoint is where the agent that runs now serves one of its endpoints.
func (n *node) endpoint(name string) string {
	n.t.Helper()
	log, err := os.ReadFile(n.path("agent.log"))
	n.must(err)
	all := regexp.MustCompile(`msg=serving endpoint=`+name+` address=(\S+)`).FindAllSubmatch(log, -1)
	if all == nil {
		n.t.Fatalf("the agent's log has no address of the endpoint %s", name)
	}
	return "http://" + string(all[len(all)-1][1])
}

// fetch gets a page of the agent's.
func (n *node) fetch(url string) (code int, text []byte) {
	n.t.Helper()
	r, err := http.Get(url)
	n.must(err)
	defer r.Body.Close()
	text, err = io.ReadAll(r.Body)
	n.must(err)
	return r.StatusCode, text
}

// scrape gets the metrics, as a Prometheus would.
func (n *node) scrape() scraped {
	n.t.Helper()
	code, text := n.fetch(n.endpoint("metrics") + "/metrics")
	if code != http.StatusOK {
		n.t.Fatalf("%d: %s", code, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	n.must(err)
	return scraped{text, families}
}

type scraped struct {
	text     []byte
	families map[string]*dto.MetricFamily
}

// value is that of the one series of a name with these labels, KEY=VALUE each.
func (s scraped) value(name string, labels ...string) (float64, bool) {
	for _, m := range s.families[name].GetMetric() {
		if !hasLabels(m, labels) {
			continue
		}
		return m.GetCounter().GetValue() + m.GetGauge().GetValue(), true
	}
	return 0, false
}

func hasLabels(m *dto.Metric, labels []string) bool {
	has := map[string]bool{}
	for _, l := range m.GetLabel() {
		has[l.GetName()+"="+l.GetValue()] = true
	}
	for _, l := range labels {
		if !has[l] {
			return false
		}
	}
	return true
}

// TestMetricsOfLinux boots a guest with all that can be counted, and sees counters
// move when it does something.
func TestMetricsOfLinux(t *testing.T) {
	t.Parallel()
	for _, q := range oneOf(t, first) {
		t.Run("qemu "+q.name, func(t *testing.T) {
			spec := linux(t, "measured")
			spec.Cpu = &specv1.CPU{Cores: 2}
			// Linux takes one of them: with several, emulated on a busy machine,
			// it may wait for the others for ever.
			spec.Boot.Kernel.Cmdline += " maxcpus=1"
			spec.Disks = []*specv1.Disk{{Name: "data", Path: newDisk(t, "raw"), Format: "raw"}}
			tap := false
			if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err == nil {
				f.Close()
				tap = true
				spec.Networks = []*specv1.NetworkInterface{{Name: "lan", Backend: &specv1.NetworkInterface_Tap{Tap: &specv1.TapNetwork{}}}}
			}
			n := newNode(t, nodeOptions{qemu: q, config: endpointsConfig})
			v := n.boot(spec)
			v.expect("count 1 .*")

			n.until("all is known", func(s scraped) bool { return n.known(s, tap) == "" })
			before := n.scrape()
			if missing := n.known(before, tap); missing != "" {
				t.Fatalf("%s has gone", missing)
			}
			problems, err := promlint.New(bytes.NewReader(before.text)).Lint()
			n.must(err)
			for _, p := range problems {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
			if size, _ := before.value("kubevirt_vmi_memory_available_bytes", "name=measured"); size < 300<<20 || size > 512<<20 {
				t.Errorf("a guest of 512 MiB says that it has %v bytes", size)
			}

			written, _ := before.value("kubevirt_vmi_storage_write_traffic_bytes_total", "drive=data")
			cpu, _ := before.value("kubevirt_vmi_cpu_usage_seconds_total", "name=measured")
			run, _ := before.value("kubevirt_vmi_vcpu_seconds_total", "name=measured", "id=0")
			v.ask("write /dev/vda some words", "written .* bytes")
			v.ask("mem 100 7", "filled 100 MiB")
			n.until("counters have moved", func(s scraped) bool {
				w, _ := s.value("kubevirt_vmi_storage_write_traffic_bytes_total", "drive=data")
				c, _ := s.value("kubevirt_vmi_cpu_usage_seconds_total", "name=measured")
				r, _ := s.value("kubevirt_vmi_vcpu_seconds_total", "name=measured", "id=0")
				return w > written && c > cpu && r > run
			})

			// Another process has the guest then, which must be asked anew.
			image := filepath.Join(t.TempDir(), "image")
			v.save(image, false)
			v.must(n.restore(&nodev1.RestoreVMRequest{Directory: image}))
			v.countsOn()
			n.until("all is known after a restore", func(s scraped) bool { return n.known(s, tap) == "" })

			// A VMM that hangs is measured from outside all the same.
			pid := int(v.get().GetStatus().GetProcess().GetVmmPid())
			n.must(unix.Kill(pid, unix.SIGSTOP))
			if _, there := n.scrape().value("kubevirt_vmi_memory_resident_bytes", "name=measured"); !there {
				t.Error("a VMM that hangs is not measured")
			}
			n.until("it is noticed that it doesn't answer", func(s scraped) bool {
				count, _ := s.value("vmlet_vmm_samples_total", "outcome=unanswered")
				return count > 0
			})
			n.must(unix.Kill(pid, unix.SIGCONT))

			v.kill()
			after := n.scrape()
			if _, there := after.value("kubevirt_vmi_cpu_usage_seconds_total", "name=measured"); there {
				t.Error("a VM that has ended uses CPU time")
			}
			if _, there := after.value("vmlet_vm_state", "name=measured", "state=stopped"); !there {
				t.Error("it is not said to be stopped")
			}
		})
	}
}

// until scrapes until something is so.
func (n *node) until(what string, is func(scraped) bool) {
	n.t.Helper()
	ctx, cancel := n.patient()
	defer cancel()
	for {
		if is(n.scrape()) {
			return
		}
		select {
		case <-ctx.Done():
			n.t.Fatalf("never: %s; %s", what, n.known(n.scrape(), false))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// known names a metric of the Linux guest that is missing.
func (n *node) known(s scraped, tap bool) string {
	want := []string{
		"cpu_usage_seconds_total", "cpu_user_usage_seconds_total", "cpu_system_usage_seconds_total", "vcpu_seconds_total id=0", "vcpu_seconds_total id=1",
		"memory_resident_bytes", "memory_domain_bytes", "memory_actual_balloon_bytes", "memory_available_bytes", "memory_unused_bytes",
		"memory_cached_bytes", "memory_usable_bytes", "memory_swap_in_traffic_bytes", "memory_swap_out_traffic_bytes",
		"memory_pgmajfault_total", "memory_pgminfault_total", "info phase=running", "guest_os_panic_total",
		"storage_iops_read_total drive=data", "storage_iops_write_total drive=data", "storage_flush_requests_total drive=data",
		"storage_read_times_seconds_total drive=data", "storage_write_times_seconds_total drive=data", "storage_flush_times_seconds_total drive=data",
	}
	if tap {
		want = append(want, "network_receive_bytes_total interface=lan", "network_transmit_packets_total interface=lan")
	}
	for _, w := range want {
		name, label, _ := strings.Cut(w, " ")
		labels := []string{"name=measured", "namespace="}
		if label != "" {
			labels = append(labels, label)
		}
		if _, there := s.value("kubevirt_vmi_"+name, labels...); !there {
			return w
		}
	}
	for _, w := range []string{"vmlet_vm_memory_charged_bytes", "vmlet_vm_sampled_timestamp_seconds", "vmlet_ram_mount_used_bytes", "vmlet_build_info"} {
		if s.families[w] == nil {
			return w
		}
	}
	return ""
}

// TestEndpoints: health, debug pages without the specification, a panic that is
// counted, and an agent that says which key has the port that is taken.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	spec := linux(t, "measured")
	spec.CloudInit = &specv1.CloudInit{UserData: "#cloud-config\n# very secret\n"}
	n := newNode(t, nodeOptions{config: endpointsConfig})
	v := n.boot(spec)
	v.expect("count 1 .*")
	for url, want := range map[string]string{
		n.endpoint("health") + "/healthz":             "ok",
		n.endpoint("health") + "/readyz?verbose":      "[+]adoption ok\n[+]api ok\n",
		n.endpoint("debug") + "/debug/health":         `"capabilities-watch"`,
		n.endpoint("debug") + "/debug/vms":            `"name": "measured"`,
		n.endpoint("debug") + "/debug/render/labels":  "node.vmlet.io/vmm=qemu\n",
		n.endpoint("debug") + "/debug/pprof/?debug=1": "heap",
	} {
		code, text := n.fetch(url)
		if code != http.StatusOK || !bytes.Contains(text, []byte(want)) {
			t.Errorf("%s: %d %s", url, code, text)
		}
		if bytes.Contains(text, []byte("secret")) {
			t.Errorf("%s tells what is secret: %s", url, text)
		}
	}
	v.ask("panic", ".*")
	n.until("the panic is counted", func(s scraped) bool {
		count, _ := s.value("kubevirt_vmi_guest_os_panic_total", "name=measured")
		if count > 1 {
			t.Fatalf("one panic is counted as %v", count)
		}
		return count == 1
	})

	taken := strings.TrimPrefix(n.endpoint("health"), "http://")
	n.must(os.WriteFile(n.path("other.yaml"), []byte("endpoints: {health: {address: \""+taken+"\"}}\n"), 0o600))
	other := n.agent("--state-dir", n.path("state2"), "--run-dir", n.path("run2"), "--config", n.path("other.yaml"))
	other.Env = append(other.Env, "VMLET_SOCKET=")
	out, err := other.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "endpoints.health.address") || !strings.Contains(string(out), "already in use") {
		t.Errorf("an agent whose port is taken: %v: %s", err, out)
	}
}
