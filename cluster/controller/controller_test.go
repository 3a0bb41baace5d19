package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/vmlet/vmlet/cluster/installation"
)

// TestCDIThatComesOrGoes ends the program; what is as at its start does not.
func TestCDIThatComesOrGoes(t *testing.T) {
	cdi, other := installation.Definition(), installation.Definition()
	cdi.Name, other.Name = dataVolumes, "others.example.com"
	for _, there := range []bool{true, false} {
		ends := 0
		h := cdiChanges(there, func(err error) { ends++ })
		step := func(what string, want int) {
			t.Helper()
			if ends != want {
				t.Errorf("with CDI at the start %v, after %s: ended %d times, want %d", there, what, ends, want)
			}
			ends = 0
		}
		wanted := map[bool]int{true: 1, false: 0}
		h.OnAdd(other, true)
		h.OnDelete(other)
		step("another definition", 0)
		h.OnAdd(cdi, true)
		step("CDI was seen", wanted[!there])
		h.OnUpdate(cdi, cdi)
		step("CDI was changed", 0)
		h.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: cdi})
		step("CDI was removed", wanted[there])
	}
}

// TestStuck: the controller-runtime that is linked has the metric, and its value decides.
func TestStuck(t *testing.T) {
	for name, c := range map[string]struct {
		seconds map[string]float64
		want    string
	}{
		"nothing runs":  {nil, ""},
		"all is well":   {map[string]float64{"instance": 0, "machine": 30}, ""},
		"one hangs":     {map[string]float64{"instance": 0, "machine": 601}, "the controller machine has not ended for 10m1s"},
		"almost so":     {map[string]float64{"machine": 599}, ""},
		"another gauge": {map[string]float64{}, ""},
	} {
		registry := prometheus.NewRegistry()
		gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: longestReconciliation}, []string{"name", "controller"})
		registry.MustRegister(gauge)
		for controller, seconds := range c.seconds {
			gauge.WithLabelValues(controller, controller).Set(seconds)
		}
		err := notStuck(registry)(t.Context())
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	described := make(chan *prometheus.Desc, 1000)
	ctrlmetrics.Registry.(prometheus.Collector).Describe(described)
	close(described)
	for d := range described {
		if strings.Contains(d.String(), `"`+longestReconciliation+`"`) {
			return
		}
	}
	t.Errorf("controller-runtime has no metric %s any more", longestReconciliation)
}

// TestCacheHolds what is looked at, of a cluster that is full of other things.
func TestCacheHolds(t *testing.T) {
	by := make(map[string]cache.ByObject)
	for o, c := range cacheOptions("vmlet", "vmlet").ByObject {
		name := o.GetObjectKind().GroupVersionKind().Kind
		if name == "" {
			name = typeOf(o)
		}
		by[name] = c
	}
	pods := by["Pod"].Namespaces
	if all := pods[cache.AllNamespaces].LabelSelector; all == nil || !all.Matches(labels.Set{"kubevirt.io": "virt-launcher"}) || all.Matches(labels.Set{}) {
		t.Errorf("of all namespaces' pods it holds %v, want VMs' pods alone", all)
	}
	if own, has := pods["vmlet"]; !has || own.LabelSelector != nil {
		t.Errorf("of vmlet's own pods it holds %v, want all", own)
	}
	for _, kind := range []string{"Deployment", "DaemonSet"} {
		if n := by[kind].Namespaces; len(n) != 1 || n["vmlet"].LabelSelector != nil {
			t.Errorf("of each %s it holds those of %v, want vmlet's namespace", kind, n)
		}
	}
	for kind, name := range map[string]string{"Namespace": "vmlet", "MutatingWebhookConfiguration": "vmlet", "ValidatingWebhookConfiguration": "vmlet"} {
		if f := by[kind].Field; f == nil || !f.Matches(fields.Set{"metadata.name": name}) || f.Matches(fields.Set{"metadata.name": "other"}) {
			t.Errorf("of each %s it holds %v, want that of the name %s", kind, f, name)
		}
	}
	d := installation.Definition()
	d.Name, d.Labels, d.Annotations = "a", map[string]string{"b": "c"}, map[string]string{corev1.LastAppliedConfigAnnotation: "long"}
	d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	if _, err := by["CustomResourceDefinition"].Transform(d); err != nil || d.Annotations != nil || d.ManagedFields != nil || d.Labels["b"] != "c" {
		t.Errorf("of a definition it holds %+v (%v), want name and labels", d, err)
	}
}

func typeOf(o client.Object) string {
	name := strings.Split(strings.TrimPrefix(fmt.Sprintf("%T", o), "*"), ".")
	return name[len(name)-1]
}
