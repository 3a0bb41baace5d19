package metrics

import (
	"context"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// hibernationGauges follow from VirtualMachines as they are.
type hibernationGauges struct{ phases, failing, oldest, bytes, lost Metric }

func newHibernationGauges() hibernationGauges {
	return hibernationGauges{
		phases: gauge("vmlet_hibernations",
			"Number of VirtualMachines that are hibernated or about to be, by the phase of their hibernationStatus. Only the leading vmlet-controller has it.", "phase"),
		failing: gauge("vmlet_hibernations_failing",
			"Number of VirtualMachines whose last attempt to be saved (what is save) or resumed (what is resume) has failed, by its reason. Only the leading vmlet-controller has it.", "what", "reason"),
		oldest: gauge("vmlet_hibernation_oldest_start_timestamp_seconds",
			"When the hibernation that has been under way for longest began, in seconds since 1970. It is missing while there is none. Only the leading vmlet-controller has it."),
		bytes: gauge("vmlet_hibernated_image_bytes",
			"Bytes that the memory images of all hibernated VirtualMachines take. Only the leading vmlet-controller has it."),
		lost: gauge("vmlet_hibernated_images_lost",
			"Number of hibernated VirtualMachines whose memory image is on a claim that does not exist, has lost its volume or is being deleted. Only the leading vmlet-controller has it."),
	}
}

func (m hibernationGauges) all() []Metric {
	return []Metric{m.phases, m.failing, m.oldest, m.bytes, m.lost}
}

// hibernation sends what VirtualMachines say of their hibernations.
func (c *Collector) hibernation(ctx context.Context, put func(Metric, float64, ...string), vms []kubevirtv1.VirtualMachine) {
	m := newHibernationGauges()
	phases, failing := make(map[string]int), make(map[[2]string]int)
	var oldest time.Time
	var bytes int64
	lost, known := 0, true
	for i := range vms {
		vm := &vms[i]
		if r := vm.Status.ResumeStatus; r != nil && r.Phase == kubevirtv1.ResumeFailed {
			failing[[2]string{"resume", word(r.Reason)}]++
		}
		h := vm.Status.HibernationStatus
		if h == nil || h.Phase == "" {
			continue
		}
		phases[word(h.Phase)]++
		switch {
		case h.Phase == kubevirtv1.HibernationFailed:
			failing[[2]string{"save", word(h.Reason)}]++
		case h.Phase != kubevirtv1.HibernationCompleted && h.StartTimestamp != nil:
			if oldest.IsZero() || h.StartTimestamp.Time.Before(oldest) {
				oldest = h.StartTimestamp.Time
			}
		case h.Phase == kubevirtv1.HibernationCompleted && h.Image != nil:
			bytes += h.Image.SizeBytes
			is, err := c.lost(ctx, vm.Namespace, h.Image.ClaimName)
			known = known && err == nil
			if is {
				lost++
			}
		}
	}
	for phase, n := range phases {
		put(m.phases, float64(n), phase)
	}
	for of, n := range failing {
		put(m.failing, float64(n), of[0], of[1])
	}
	if !oldest.IsZero() {
		put(m.oldest, float64(oldest.Unix()))
	}
	put(m.bytes, float64(bytes))
	if known {
		put(m.lost, float64(lost))
	}
}

// lost says whether what is on a claim can't be read any more, or not for long.
func (c *Collector) lost(ctx context.Context, namespace, name string) (bool, error) {
	claim := &corev1.PersistentVolumeClaim{}
	err := c.Objects.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, claim)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	}
	return claim.Status.Phase == corev1.ClaimLost || claim.DeletionTimestamp != nil, nil
}

// word bounds the values of a label: reasons and phases are words of the controller's, but come out
// of an object.
func word(s string) string {
	if s == "" || regexp.MustCompile(`^[A-Za-z]{1,40}$`).MatchString(s) {
		return s
	}
	return "Other"
}

// Hibernations counts the hibernations and resumes that end, as far as VirtualMachines' status
// shows it while this replica leads. It is a [prometheus.Collector].
type Hibernations struct {
	leads func() bool
	now   func() time.Time

	saves, resumes             *prometheus.CounterVec
	saveSeconds, resumeSeconds prometheus.Histogram
	savedBytes                 prometheus.Counter
	mu                         sync.Mutex
	resuming                   map[types.UID]time.Time // since when
}

// hibernationCounters are Hibernations' metrics.
func hibernationCounters() []Metric {
	of := func(kind, name, help string, labels ...string) Metric {
		return Metric{Name: name, Help: help, Labels: labels, Type: kind}
	}
	return []Metric{
		of("counter", "vmlet_hibernations_total",
			"Attempts to hibernate a VirtualMachine that have ended, by mode (Save, SuspendToDisk), result (completed, failed, cancelled) and, if they failed, reason. The leading vmlet-controller counts them.", "mode", "result", "reason"),
		of("counter", "vmlet_resumes_total",
			"Attempts to resume a hibernated VirtualMachine that have ended, by result (completed, failed) and, if they failed, reason. The leading vmlet-controller counts them.", "result", "reason"),
		of("histogram", "vmlet_hibernation_duration_seconds",
			"Seconds from the beginning of an attempt to hibernate a VirtualMachine until it was complete. The leading vmlet-controller measures it."),
		of("histogram", "vmlet_resume_duration_seconds",
			"Seconds from the beginning of a resume of a VirtualMachine until its guest ran. The leading vmlet-controller measures it."),
		of("counter", "vmlet_hibernation_saved_bytes_total",
			"Bytes of the memory images of all hibernations that were complete. The leading vmlet-controller counts them."),
	}
}

// NewHibernations returns a counter that counts while leads says so.
func NewHibernations(leads func() bool, now func() time.Time) *Hibernations {
	m := hibernationCounters()
	buckets := prometheus.ExponentialBuckets(0.5, 2, 13) // up to 34 minutes
	counters := func(m Metric) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
	}
	seconds := func(m Metric) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: buckets})
	}
	return &Hibernations{
		leads: leads, now: now, resuming: make(map[types.UID]time.Time),
		saves: counters(m[0]), resumes: counters(m[1]), saveSeconds: seconds(m[2]), resumeSeconds: seconds(m[3]),
		savedBytes: prometheus.NewCounter(prometheus.CounterOpts{Name: m[4].Name, Help: m[4].Help}),
	}
}

func (h *Hibernations) parts() []prometheus.Collector {
	return []prometheus.Collector{h.saves, h.resumes, h.saveSeconds, h.resumeSeconds, h.savedBytes}
}

// Describe sends all metrics that there can be.
func (h *Hibernations) Describe(to chan<- *prometheus.Desc) {
	for _, p := range h.parts() {
		p.Describe(to)
	}
}

// Collect sends what was counted.
func (h *Hibernations) Collect(to chan<- prometheus.Metric) {
	for _, p := range h.parts() {
		p.Collect(to)
	}
}

// Changed takes a VirtualMachine as it was, and as it is now. after is nil if it is gone.
func (h *Hibernations) Changed(before, after *kubevirtv1.VirtualMachine) {
	if after == nil {
		h.forget(before.UID)
		return
	}
	if !h.leads() || before.UID != after.UID {
		return
	}
	h.saved(before.Status.HibernationStatus, after.Status.HibernationStatus)
	h.resumed(after.UID, resumePhase(before), resumePhase(after), after.Status.ResumeStatus)
}

func (h *Hibernations) saved(was, is *kubevirtv1.HibernationStatus) {
	switch {
	case is == nil:
		if was != nil && was.Phase != "" && was.Phase != kubevirtv1.HibernationCompleted {
			h.saves.WithLabelValues(word(was.Mode), "cancelled", "").Inc()
		}
	case is.Phase == kubevirtv1.HibernationFailed && (was == nil || was.Phase != is.Phase || was.Failures < is.Failures):
		h.saves.WithLabelValues(word(is.Mode), "failed", word(is.Reason)).Inc()
	case is.Phase == kubevirtv1.HibernationCompleted && (was == nil || was.Phase != is.Phase):
		h.saves.WithLabelValues(word(is.Mode), "completed", "").Inc()
		if is.StartTimestamp != nil && is.CompletionTimestamp != nil {
			h.saveSeconds.Observe(max(0, is.CompletionTimestamp.Sub(is.StartTimestamp.Time).Seconds()))
		}
		if is.Image != nil && is.Image.SizeBytes > 0 {
			h.savedBytes.Add(float64(is.Image.SizeBytes))
		}
	}
}

func resumePhase(vm *kubevirtv1.VirtualMachine) string {
	if vm.Status.ResumeStatus == nil {
		return ""
	}
	return vm.Status.ResumeStatus.Phase
}

func (h *Hibernations) resumed(uid types.UID, was, is string, now *kubevirtv1.ResumeStatus) {
	under := []string{kubevirtv1.ResumeInitial, kubevirtv1.ResumeInProgress}
	over := []string{kubevirtv1.ResumeCompleted, kubevirtv1.ResumeCleaned}
	switch {
	case slices.Contains(under, is):
		if !slices.Contains(under, was) {
			h.mu.Lock()
			h.resuming[uid] = h.now()
			h.mu.Unlock()
		}
		return
	case is == kubevirtv1.ResumeFailed && was != is:
		h.resumes.WithLabelValues("failed", word(now.Reason)).Inc()
	case slices.Contains(over, is) && !slices.Contains(over, was):
		h.resumes.WithLabelValues("completed", "").Inc()
		if since, known := h.since(uid); known {
			h.resumeSeconds.Observe(max(0, h.now().Sub(since).Seconds()))
		}
	}
	h.forget(uid)
}

func (h *Hibernations) since(uid types.UID) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since, known := h.resuming[uid]
	return since, known
}

func (h *Hibernations) forget(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.resuming, uid)
}
