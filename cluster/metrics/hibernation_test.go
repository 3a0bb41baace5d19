package metrics

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func vmWith(name string, h *kubevirtv1.HibernationStatus, r *kubevirtv1.ResumeStatus) *kubevirtv1.VirtualMachine {
	vm := &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: "u"}}
	vm.Status.HibernationStatus, vm.Status.ResumeStatus = h, r
	return vm
}

func image(claim string) *kubevirtv1.HibernationStatus {
	return &kubevirtv1.HibernationStatus{
		Mode: "Save", Phase: kubevirtv1.HibernationCompleted, StartTimestamp: &metav1.Time{Time: noon}, CompletionTimestamp: &metav1.Time{Time: noon.Add(3 * time.Second)},
		Image: &kubevirtv1.SavedImage{ClaimName: claim, SizeBytes: 100},
	}
}

func phase(p, reason string) *kubevirtv1.HibernationStatus {
	return &kubevirtv1.HibernationStatus{Mode: "Save", Phase: p, Reason: reason, StartTimestamp: &metav1.Time{Time: noon}}
}

// TestHibernationGauges: what VMs say of themselves, and images that nobody can read any more.
func TestHibernationGauges(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), kubevirtv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	claim := func(name string, p corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Status: corev1.PersistentVolumeClaimStatus{Phase: p}}
	}
	dying := claim("dying", corev1.ClaimBound)
	dying.Finalizers, dying.DeletionTimestamp = []string{"x/y"}, &metav1.Time{Time: noon}
	later := phase("Initial", "")
	later.StartTimestamp = &metav1.Time{Time: noon.Add(time.Minute)}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		claim("kept", corev1.ClaimBound), claim("lost", corev1.ClaimLost), dying,
		vmWith("a", image("kept"), nil), vmWith("b", image("lost"), nil), vmWith("c", image("gone"), nil), vmWith("d", image("dying"), nil),
		vmWith("e", phase("InProgress", ""), nil), vmWith("f", later, nil), vmWith("g", phase("Failed", "NoSpace"), nil),
		vmWith("h", phase("Failed", "a sentence, from nowhere"), nil),
		vmWith("i", image("kept"), &kubevirtv1.ResumeStatus{Phase: "Failed", Reason: "DiskChanged"}),
	)
	got := values(t, &Collector{
		Certificate: func() time.Time { return time.Time{} }, Leads: func() bool { return true }, Objects: b.Build(), Streams: func() map[string]bool { return nil },
	})
	want := `vmlet_hibernated_image_bytes{} 500
vmlet_hibernated_images_lost{} 3
vmlet_hibernation_oldest_start_timestamp_seconds{} 1.7829072e+09
vmlet_hibernations{phase=Completed} 5
vmlet_hibernations{phase=Failed} 2
vmlet_hibernations{phase=InProgress} 1
vmlet_hibernations{phase=Initial} 1
vmlet_hibernations_failing{reason=DiskChanged,what=resume} 1
vmlet_hibernations_failing{reason=NoSpace,what=save} 1
vmlet_hibernations_failing{reason=Other,what=save} 1
vmlet_virtualmachines{status=} 9`
	if got != want {
		t.Errorf("the metrics are\n%s\nwant\n%s", got, want)
	}
}

// TestHibernationsThatEnd: each end is counted once, however often the VM is written after it, and
// by nobody who doesn't lead.
func TestHibernationsThatEnd(t *testing.T) {
	failedTwice := phase("Failed", "NoSpace")
	failedTwice.Failures = 1
	for name, c := range map[string]struct {
		waits bool
		vms   []*kubevirtv1.VirtualMachine // one after the other
		want  string
	}{
		"saved": {false, []*kubevirtv1.VirtualMachine{
			vmWith("a", nil, nil), vmWith("a", phase("Initial", ""), nil), vmWith("a", image("c"), nil), vmWith("a", image("c"), nil),
		}, "vmlet_hibernation_duration_seconds{} 1 in 3s; vmlet_hibernation_saved_bytes_total{} 100; vmlet_hibernations_total{Save,,completed} 1"},
		"not the leader": {true, []*kubevirtv1.VirtualMachine{vmWith("a", nil, nil), vmWith("a", image("c"), nil)}, ""},
		"failed, twice": {false, []*kubevirtv1.VirtualMachine{
			vmWith("a", phase("Initial", ""), nil), vmWith("a", phase("Failed", "NoSpace"), nil), vmWith("a", phase("Failed", "NoSpace"), nil), vmWith("a", failedTwice, nil),
		}, "vmlet_hibernations_total{Save,NoSpace,failed} 2"},
		"cancelled": {false, []*kubevirtv1.VirtualMachine{vmWith("a", phase("InProgress", ""), nil), vmWith("a", nil, nil)},
			"vmlet_hibernations_total{Save,,cancelled} 1"},
		"resumed": {false, []*kubevirtv1.VirtualMachine{
			vmWith("a", image("c"), nil), vmWith("a", image("c"), resume("Initial")), vmWith("a", image("c"), resume("InProgress")), vmWith("a", image("c"), resume("Completed")), vmWith("a", nil, resume("Cleaned")),
		}, "vmlet_resume_duration_seconds{} 1 in 2s; vmlet_resumes_total{,completed} 1"},
		"not resumed": {false, []*kubevirtv1.VirtualMachine{
			vmWith("a", image("c"), resume("InProgress")), vmWith("a", image("c"), resume("Failed")), vmWith("a", image("c"), resume("Failed")),
		}, "vmlet_resumes_total{ImageUsed,failed} 1"},
		"a controller that began in the middle": {false, []*kubevirtv1.VirtualMachine{vmWith("a", image("c"), resume("InProgress")), vmWith("a", nil, resume("Completed"))},
			"vmlet_resumes_total{,completed} 1"},
	} {
		now := noon
		h := NewHibernations(func() bool { return !c.waits }, func() time.Time { return now })
		for i := range c.vms[1:] {
			now = now.Add(time.Second)
			h.Changed(c.vms[i], c.vms[i+1])
		}
		h.Changed(c.vms[len(c.vms)-1], nil)
		if got := counted(t, h); got != c.want {
			t.Errorf("%s: counted %s, want %s", name, got, c.want)
		}
		if len(h.resuming) != 0 {
			t.Errorf("%s: %d VMs are remembered that are gone", name, len(h.resuming))
		}
	}
}

func resume(phase string) *kubevirtv1.ResumeStatus {
	r := &kubevirtv1.ResumeStatus{Phase: phase}
	if phase == kubevirtv1.ResumeFailed {
		r.Reason = "ImageUsed"
	}
	return r
}

// counted is what a collector has that is not 0.
func counted(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			name := fmt.Sprintf("%s{%s} ", f.GetName(), strings.Join(labels, ","))
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				if n := m.GetHistogram().GetSampleCount(); n > 0 {
					all = append(all, fmt.Sprintf("%s%d in %vs", name, n, m.GetHistogram().GetSampleSum()))
				}
			default:
				if n := m.GetCounter().GetValue(); n > 0 {
					all = append(all, fmt.Sprintf("%s%v", name, n))
				}
			}
		}
	}
	return strings.Join(all, "; ")
}
