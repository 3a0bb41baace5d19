package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// TestPhases: each phase of an instance is measured once, by its pool, by the replica that leads; what was measured of a
// pool goes with it.
func TestPhases(t *testing.T) {
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	vmi := func(name, index string, phases ...kubevirtv1.Phase) *kubevirtv1.VirtualMachineInstance {
		vmi := &kubevirtv1.VirtualMachineInstance{}
		vmi.Namespace, vmi.Name, vmi.CreationTimestamp = "space", name, metav1.NewTime(start)
		if index != "" {
			vmi.Labels = map[string]string{contract.LabelPool: "uid", contract.LabelPoolIndex: index}
		}
		for i, phase := range phases {
			vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps, kubevirtv1.PhaseTransition{
				Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(start.Add(time.Duration(i+1) * time.Second)),
			})
		}
		return vmi
	}
	leads := true
	p := NewPhases(func() bool { return leads })
	p.Changed(vmi("web-7", "7", "Scheduled"), vmi("web-7", "7", "Scheduled", "Running"))
	p.Changed(vmi("web-7", "7", "Scheduled", "Running"), vmi("web-7", "7", "Scheduled", "Running"))
	p.Changed(vmi("alone", ""), vmi("alone", "", "Scheduled", "Running"))
	p.Changed(vmi("other", "7"), vmi("other", "7", "Running")) // a label that somebody put there
	leads = false
	p.Changed(vmi("web-8", "8"), vmi("web-8", "8", "Running"))
	got := func() map[string]float64 {
		registry := prometheus.NewRegistry()
		registry.MustRegister(p)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		all := make(map[string]float64)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				labels := ""
				for _, l := range m.GetLabel() {
					labels += l.GetValue() + "/"
				}
				all[labels] = m.GetHistogram().GetSampleSum()
			}
		}
		return all
	}
	want := map[string]float64{"space/Running/web/": 2, "/Scheduled//": 1, "/Running//": 3}
	all := got()
	for labels, sum := range want {
		if all[labels] != sum {
			t.Errorf("%s: %v seconds, want %v", labels, all[labels], sum)
		}
	}
	if len(all) != len(want) {
		t.Errorf("there are %v, want %v", all, want)
	}
	p.Gone("space", "web")
	if all := got(); len(all) != 2 {
		t.Errorf("of a pool that is gone there are %v", all)
	}
}
