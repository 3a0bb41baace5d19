package metrics

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md")

func objects(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), kubevirtv1.AddToScheme(scheme), poolv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme)
	for name, status := range map[string]kubevirtv1.PrintableStatus{"a": "Running", "b": "Running", "c": "Stopped"} {
		vm := &kubevirtv1.VirtualMachine{}
		vm.Namespace, vm.Name, vm.Status.PrintableStatus = "team", name, status
		b.WithObjects(vm)
	}
	for name, phase := range map[string]kubevirtv1.Phase{"a": "Running", "b": "Scheduled", "new": ""} {
		vmi := &kubevirtv1.VirtualMachineInstance{}
		vmi.Namespace, vmi.Name, vmi.Status.Phase = "team", name, phase
		vmi.Status.VMM = &kubevirtv1.VMMStatus{Name: "qemu", Version: "10.0.2", Hypervisor: "kvm"}
		b.WithObjects(vmi)
	}
	pool := &poolv1.VirtualMachinePool{}
	pool.Namespace, pool.Name, pool.Spec.Replicas = "team", "web", new(int32(6))
	pool.Status = poolv1.VirtualMachinePoolStatus{Replicas: 5, ReadyReplicas: 4, UpdatedReplicas: 3, AvailableReplicas: 2, PreservedReplicas: 1, StandbyReplicas: 8, ReadyStandbyReplicas: 7}
	pool.Status.Healed = []poolv1.HealedMember{{Index: 1, Count: 2}, {Index: 2, Count: 3}}
	pool.Status.Conditions = []metav1.Condition{{Type: poolv1.ConditionProgressing, Status: metav1.ConditionTrue}, {Type: poolv1.ConditionReplicaFailure, Status: metav1.ConditionTrue}}
	pool.Spec.Standby = &poolv1.VirtualMachinePoolStandby{Replicas: 9}
	return b.WithObjects(pool).Build()
}

// values are a collector's, a line each.
func values(t *testing.T, c *Collector) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			lines = append(lines, fmt.Sprintf("%s{%s} %v", f.GetName(), strings.Join(labels, ","), m.GetGauge().GetValue()))
		}
	}
	return strings.Join(lines, "\n")
}

func TestMetrics(t *testing.T) {
	end := time.Unix(1782900000, 0)
	for name, c := range map[string]struct {
		collector Collector
		want      string
	}{
		"vmlet-api":                       {Collector{Certificate: func() time.Time { return end }}, "vmlet_certificate_expiration_timestamp_seconds{} 1.7829e+09"},
		"vmlet-api without a certificate": {Collector{Certificate: func() time.Time { return time.Time{} }}, ""},
		"a controller that waits": {Collector{
			Certificate: func() time.Time { return end }, Leads: func() bool { return false }, Objects: objects(t),
		}, "vmlet_certificate_expiration_timestamp_seconds{} 1.7829e+09"},
		"a controller that leads": {Collector{
			Certificate: func() time.Time { return time.Time{} }, Leads: func() bool { return true }, Objects: objects(t),
			Streams: func() map[string]bool { return map[string]bool{"n1": true, "n2": false} },
		}, `vmlet_agent_stream_up{node=n1} 1
vmlet_agent_stream_up{node=n2} 0
vmlet_hibernated_image_bytes{} 0
vmlet_hibernated_images_lost{} 0
vmlet_virtualmachineinstances{phase=Pending} 1
vmlet_virtualmachineinstances{phase=Running} 1
vmlet_virtualmachineinstances{phase=Scheduled} 1
vmlet_virtualmachineinstances_running{hypervisor=kvm,version=10.0.2,vmm=qemu} 1
vmlet_virtualmachinepool_problem{namespace=team,pool=web,problem=failing} 1
vmlet_virtualmachinepool_problem{namespace=team,pool=web,problem=healing} 1
vmlet_virtualmachinepool_problem{namespace=team,pool=web,problem=stalled} 0
vmlet_virtualmachinepool_replicas{namespace=team,pool=web,state=available} 2
vmlet_virtualmachinepool_replicas{namespace=team,pool=web,state=current} 5
vmlet_virtualmachinepool_replicas{namespace=team,pool=web,state=preserved} 1
vmlet_virtualmachinepool_replicas{namespace=team,pool=web,state=ready} 4
vmlet_virtualmachinepool_replicas{namespace=team,pool=web,state=standby} 8
vmlet_virtualmachinepool_replicas{namespace=team,pool=web,state=standby-ready} 7
vmlet_virtualmachinepool_replicas{namespace=team,pool=web,state=standby-wanted} 9
vmlet_virtualmachinepool_replicas{namespace=team,pool=web,state=updated} 3
vmlet_virtualmachinepool_replicas{namespace=team,pool=web,state=wanted} 6
vmlet_virtualmachines{status=Running} 2
vmlet_virtualmachines{status=Stopped} 1`},
		"a cache that can't be read": {Collector{
			Certificate: func() time.Time { return time.Time{} }, Leads: func() bool { return true },
			Objects: fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build(), Streams: func() map[string]bool { return nil },
		}, ""},
	} {
		if got := values(t, &c.collector); got != c.want {
			t.Errorf("%s: the metrics are\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

func TestNamesAreGood(t *testing.T) {
	c := &Collector{
		Certificate: time.Now, Leads: func() bool { return true }, Objects: objects(t),
		Streams: func() map[string]bool { return map[string]bool{"n1": true} },
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// TestDocs holds docs/metrics.md to the metrics. -update writes the table.
func TestDocs(t *testing.T) {
	const path, begin, end = "../../docs/metrics.md", "<!-- the cluster's: written by go test ./cluster/metrics -update -->\n", "<!-- end -->\n"
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	table := "| metric | type | labels | what |\n| --- | --- | --- | --- |\n"
	for _, m := range All() {
		labels := ""
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", m.Name, m.Type, labels, m.Help)
	}
	before, rest, is := strings.Cut(string(content), begin)
	_, after, ends := strings.Cut(rest, end)
	if !is || !ends {
		t.Fatal(errors.New(path + " has no place for the table"))
	}
	page := before + begin + table + end + after
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if page != string(content) {
		t.Errorf("%s is not as the metrics are: go test ./cluster/metrics -update", path)
	}
}
