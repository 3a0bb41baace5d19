package guest

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// TestStandBy: a guest is paused while its VM stands by, and by the pool's word for this very instance; of one that is taken it
// goes on before its pod serves. What users pause stays paused.
func TestStandBy(t *testing.T) {
	type changes = []func(*kubevirtv1.VirtualMachineInstance)
	standby := func(v *kubevirtv1.VirtualMachineInstance) {
		v.Labels = map[string]string{contract.LabelPoolStandby: "Running"}
	}
	paused := func(uid string) func(*kubevirtv1.VirtualMachineInstance) {
		return func(v *kubevirtv1.VirtualMachineInstance) {
			if uid == "" {
				uid = string(v.UID)
			}
			v.Annotations = map[string]string{contract.AnnotationPoolPaused: uid}
		}
	}
	in := func(state nodev1.State, stands, gate bool) func(*view.Pod) {
		return func(p *view.Pod) {
			scene.RunsSince(time.Hour)(p)
			scene.Heard(state)(p)
			if delete(p.Labels, contract.LabelPoolStandby); stands {
				p.Labels = map[string]string{contract.LabelPoolStandby: "Running"}
			}
			if gate {
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: contract.ConditionServes, Status: corev1.ConditionTrue})
			}
		}
	}
	for name, c := range map[string]struct {
		pod      func(*view.Pod)
		instance changes
		want     string
		taken    bool
	}{
		"serves":                  {in(scene.Running, false, false), nil, "", false},
		"serves, a user's pause":  {in(scene.Paused, false, false), nil, "", false},
		"boots":                   {in(scene.Running, true, false), changes{standby}, "", false},
		"is to be paused":         {in(scene.Running, true, false), changes{standby, paused("")}, "pause", false},
		"was, in another run":     {in(scene.Running, true, false), changes{standby, paused("earlier")}, "", false},
		"is paused":               {in(scene.Paused, true, false), changes{standby, paused("")}, "", false},
		"is taken":                {in(scene.Paused, true, false), nil, "resume", true},
		"is taken, runs":          {in(scene.Running, true, false), nil, "serve", true},
		"is taken, serves":        {in(scene.Running, true, true), nil, "", false},
		"is taken, asked already": {func(p *view.Pod) { in(scene.Paused, true, false)(p); p.Directed = true }, nil, "", true},
		"is taken, not heard":     {func(p *view.Pod) { in(scene.Paused, true, false)(p); p.Report.Current = false }, nil, "", true},
		"is taken, ends":          {func(p *view.Pod) { in(scene.Paused, true, false)(p); scene.Ending(p) }, nil, "", true},
	} {
		s := scene.On(kubevirtv1.PhaseRunning, c.pod).Change(c.instance...)
		got := ""
		if a := StandBy(s.View); a != nil {
			got = a.String()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if is := Taken(s.View); is != c.taken {
			t.Errorf("%s: taken %v, want %v", name, is, c.taken)
		}
	}
}
