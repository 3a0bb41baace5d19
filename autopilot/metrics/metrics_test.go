package metrics

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gathered are the metrics as NAME LABELS VALUE, without the prefix.
func gathered(t *testing.T, m *Metrics) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range families {
		for _, one := range f.GetMetric() {
			var labels []string
			for _, l := range one.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := fmt.Sprint(one.GetGauge().GetValue() + one.GetCounter().GetValue())
			if h := one.GetHistogram(); h != nil {
				value = fmt.Sprintf("%d times", h.GetSampleCount())
			}
			all = append(all, fmt.Sprintf("%s %s %s", strings.TrimPrefix(f.GetName(), prefix), strings.Join(labels, ","), value))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// TestGauges: what each state of an asset shows, and that nothing is left of it.
func TestGauges(t *testing.T) {
	m := New()
	needs := func(missing bool) map[Kind]bool { return map[Kind]bool{{"g", "v1", "K"}: missing} }
	object := Asset{Kind: "K", Name: "a", Namespace: "n", Known: true, Compliant: true, Wanted: true, Needs: needs(false), Customizations: []string{"patch"}}
	m.Set("a", &object)
	m.Set("b", &Asset{Wanted: true, Needs: needs(true)})
	m.Set("c", &Asset{Wanted: false, Needs: map[Kind]bool{{"other", "v1", "K"}: true}, RenderFailed: true})
	m.Set("d", &Asset{Kind: "K", Name: "d", Namespace: "n", Known: true, Paused: true})
	m.Bury("t", Tombstone{"K", "t", "n", -2})
	m.Observe("K", "a", "n", time.Second)
	want := `compliance_status kind=K,name=a,namespace=n 1
compliance_status kind=K,name=d,namespace=n 0
customization_info kind=K,name=a,namespace=n,type=patch 1
dependency_opted_in group=g,kind=K,version=v1 1
missing_dependency group=g,kind=K,version=v1 1
paused_resources kind=K,name=a,namespace=n 0
paused_resources kind=K,name=d,namespace=n 1
reconcile_duration_seconds kind=K,name=a,namespace=n 1 times
render_failed asset=c 1
tombstone_status kind=K,name=t,namespace=n -2`
	if got := gathered(t, m); got != want {
		t.Errorf("the metrics are\n%s\nwant\n%s", got, want)
	}
	m.Set("a", nil)
	m.Set("b", &Asset{Wanted: true, Needs: needs(false)})
	m.Set("c", nil)
	m.Set("d", nil)
	want = "dependency_opted_in group=g,kind=K,version=v1 1\nmissing_dependency group=g,kind=K,version=v1 0\ntombstone_status kind=K,name=t,namespace=n -2"
	if got := gathered(t, m); got != want {
		t.Errorf("afterwards they are\n%s\nwant\n%s", got, want)
	}
	m.Clear()
	if got := gathered(t, m); got != "" {
		t.Errorf("switched off they are\n%s", got)
	}
}

// TestCounters: each is counted under its own name.
func TestCounters(t *testing.T) {
	m := New()
	for i, counter := range []*prometheus.CounterVec{m.Reconciles, m.Errors, m.Applies, m.Drifts, m.Throttles} {
		counter.WithLabelValues("a").Add(float64(i + 1))
	}
	m.Thrashing.WithLabelValues("K", "a", "n").Inc()
	want := `asset_apply_total asset=a 3
asset_reconcile_errors_total asset=a 2
asset_reconcile_total asset=a 1
drift_detected_total asset=a 4
thrashing_total kind=K,name=a,namespace=n 1
throttle_delayed_total asset=a 5`
	if got := gathered(t, m); got != want {
		t.Errorf("the metrics are\n%s\nwant\n%s", got, want)
	}
}

// TestNames: all have the prefix, a help that is a sentence, and a type.
func TestNames(t *testing.T) {
	for _, m := range All() {
		if !strings.HasPrefix(m.Name, prefix) || !strings.HasSuffix(m.Help, ".") || !slices.Contains([]string{"gauge", "counter", "histogram"}, m.Type) {
			t.Errorf("%+v", m)
		}
		if (m.Type == "counter") != strings.HasSuffix(m.Name, "_total") {
			t.Errorf("%s is a %s", m.Name, m.Type)
		}
	}
}
