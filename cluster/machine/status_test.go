package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// TestConditions: a VM has its own conditions and its instance's, each since it changed.
func TestConditions(t *testing.T) {
	earlier, later := metav1.NewTime(noon.Add(-time.Hour)), metav1.NewTime(noon)
	o := state{vm: newVM("Always"), defaults: noDefaults, now: noon}
	o.instance = made(o.vm, kubevirtv1.PhaseRunning, true)
	o.vm.Status.Conditions = []kubevirtv1.Condition{
		{Type: "ManualRecoveryRequired", Status: "True", LastTransitionTime: earlier},
		{Type: "Failure", Status: "True", LastTransitionTime: earlier},
		{Type: "Paused", Status: "True", LastTransitionTime: earlier},
		{Type: "AgentConnected", Status: "True", LastTransitionTime: earlier},
	}
	o.instance.Status.Conditions = []kubevirtv1.Condition{
		{Type: "Ready", Status: "True", LastTransitionTime: later, LastProbeTime: later, ObservedGeneration: 7},
		{Type: "RestartRequired", Status: "True"},
		{Type: "AgentConnected", Status: "True"},
	}
	want := []kubevirtv1.Condition{
		{Type: "AgentConnected", Status: "True", LastTransitionTime: earlier},
		{Type: "ManualRecoveryRequired", Status: "True", LastTransitionTime: earlier},
		{Type: "Ready", Status: "True", LastTransitionTime: later},
	}
	got := status(decideRun(o))
	if !slices.Equal(got.Conditions, want) {
		t.Errorf("conditions\n%+v, want\n%+v", got.Conditions, want)
	}
	if !got.Ready || !got.Created {
		t.Errorf("ready %v, created %v", got.Ready, got.Created)
	}
}

// TestReady: a VM is ready as its instance is, and says why it is not.
func TestReady(t *testing.T) {
	for name, c := range map[string]struct {
		phase      kubevirtv1.Phase // "none": no instance
		status     metav1.ConditionStatus
		wantReady  bool
		wantReason string
		created    bool
	}{
		"no instance":  {"none", "", false, "VMINotExists", false},
		"no condition": {kubevirtv1.PhaseScheduled, "", false, "VMIConditionMissing", true},
		"not ready":    {kubevirtv1.PhaseRunning, "False", false, "GuestNotRunning", true},
		"ready":        {kubevirtv1.PhaseRunning, "True", true, "GuestNotRunning", true},
		"unknown":      {kubevirtv1.PhaseUnknown, "True", false, "NodeUnresponsive", true},
		"ended":        {kubevirtv1.PhaseSucceeded, "False", false, "GuestNotRunning", false},
	} {
		o := state{vm: newVM("Manual"), defaults: noDefaults, now: noon}
		if c.phase != "none" {
			o.instance = made(o.vm, c.phase, true)
		}
		if c.status != "" {
			o.instance.Status.Conditions = []kubevirtv1.Condition{{Type: "Ready", Status: c.status, Reason: "GuestNotRunning"}}
		}
		got := status(decideRun(o))
		if got.Ready != c.wantReady || got.Created != c.created {
			t.Errorf("%s: ready %v, created %v", name, got.Ready, got.Created)
		}
		if ready := kubevirtv1.FindCondition(got.Conditions, "Ready"); ready.Reason != c.wantReason {
			t.Errorf("%s: reason %s, want %s", name, ready.Reason, c.wantReason)
		}
	}
}

// TestFailedStarts: why a VM does not start stays on the VM while its instances come and go,
// and goes when one runs.
func TestFailedStarts(t *testing.T) {
	o := state{vm: newVM("Always"), defaults: noDefaults, now: noon}
	o.vm.Status.RunStrategy = "Always"
	message := func() string {
		t.Helper()
		r := decideRun(o)
		to := status(r)
		events := eventsOf(r, to)
		before, now := kubevirtv1.FindCondition(o.vm.Status.Conditions, "Failure"), kubevirtv1.FindCondition(to.Conditions, "Failure")
		if changed := now != nil && (before == nil || before.Message != now.Message); changed != (len(events) == 1) {
			t.Errorf("events %v of %+v after %+v", events, now, before)
		}
		o.vm.Status = *to
		if now == nil {
			return ""
		}
		if now.Status != "True" || now.Reason != "FailedStart" {
			t.Errorf("%+v", now)
		}
		return now.Message
	}
	fails := func(uid types.UID, why string) {
		o.instance = made(o.vm, kubevirtv1.PhaseFailed, false)
		o.instance.UID = uid
		o.instance.Status.Conditions = []kubevirtv1.Condition{{Type: "Ready", Status: "False", Message: "not ready"}, {Type: "Synchronized", Status: "False", Message: why}}
	}
	want := func(step, text string) {
		t.Helper()
		got := message()
		if retry := o.vm.Status.StartFailure; retry != nil {
			text = strings.ReplaceAll(text, "RETRY", retry.RetryAfterTimestamp.UTC().Format(time.RFC3339))
		}
		if got != text {
			t.Errorf("%s: Failure says %q, want %q", step, got, text)
		}
	}
	fails("1", "no kernel")
	want("failed", "the VM's start failed, the next one is at RETRY (virtctl restart tries now): no kernel")
	o.instance.DeletionTimestamp = &metav1.Time{Time: noon}
	want("being deleted", "the VM's start failed, the next one is at RETRY (virtctl restart tries now): no kernel")
	o.instance = nil
	want("waiting", "the VM's start failed, the next one is at RETRY (virtctl restart tries now): no kernel")
	if c := kubevirtv1.FindCondition(o.vm.Status.Conditions, "Ready"); !strings.HasSuffix(c.Message, ": no kernel") {
		t.Errorf("Ready says %q", c.Message)
	}
	o.instance = made(o.vm, kubevirtv1.PhaseScheduling, false)
	want("tried again", "the VM's start failed, the next one is at RETRY (virtctl restart tries now): no kernel")
	fails("2", "no initrd")
	want("failed again", "the VM's last 2 starts failed, the next one is at RETRY (virtctl restart tries now): no initrd")
	o.instance = made(o.vm, kubevirtv1.PhaseRunning, true)
	want("runs", "")
	fails("3", "no kernel")
	want("failed later", "the VM's start failed, the next one is at RETRY (virtctl restart tries now): no kernel")
	halted := kubevirtv1.RunStrategyHalted
	o.vm.Spec.RunStrategy = &halted
	want("halted", "")
}

// TestNotReadyOfDataVolume: a VM without an instance says which DataVolume failed.
func TestNotReadyOfDataVolume(t *testing.T) {
	o := state{vm: newVM("Always"), defaults: noDefaults, now: noon, imports: true}
	o.volumes = []volume{{name: "root", dataVolume: &dataVolume{fault: "no such image"}}}
	if c := kubevirtv1.FindCondition(status(decideRun(o)).Conditions, "Ready"); c.Message != "the VM has no VirtualMachineInstance: DataVolume root: no such image" {
		t.Errorf("Ready says %q", c.Message)
	}
}

// TestRestartRequired: it is said exactly when a restart would change the instance, and
// what would.
func TestRestartRequired(t *testing.T) {
	memory := resource.MustParse("1Gi")
	spelled := resource.MustParse("1024Mi")
	for name, c := range map[string]struct {
		change func(*kubevirtv1.VirtualMachineSpec)
		want   string // paths; empty: none
	}{
		"nothing":             {func(*kubevirtv1.VirtualMachineSpec) {}, ""},
		"run strategy":        {func(s *kubevirtv1.VirtualMachineSpec) { *s.RunStrategy = "Manual" }, ""},
		"a default, spelled":  {func(s *kubevirtv1.VirtualMachineSpec) { s.Template.Spec.SchedulerName = "default" }, ""},
		"a quantity, spelled": {func(s *kubevirtv1.VirtualMachineSpec) { s.Template.Spec.Domain.Memory.Guest = &spelled }, ""},
		"an empty list":       {func(s *kubevirtv1.VirtualMachineSpec) { s.Template.Spec.Networks = []kubevirtv1.Network{} }, ""},
		"the UUID filled in":  {func(s *kubevirtv1.VirtualMachineSpec) { run.Identify(&s.Template.Spec.Domain, "web") }, ""},
		"template's name":     {func(s *kubevirtv1.VirtualMachineSpec) { s.Template.Name = "x" }, ""},
		"DataVolumes": {func(s *kubevirtv1.VirtualMachineSpec) {
			s.DataVolumeTemplates = make([]kubevirtv1.DataVolumeTemplateSpec, 1)
		}, ""},
		"sockets":           {func(s *kubevirtv1.VirtualMachineSpec) { s.Template.Spec.Domain.CPU.Sockets = 4 }, "spec.template.spec.domain.cpu.sockets"},
		"another scheduler": {func(s *kubevirtv1.VirtualMachineSpec) { s.Template.Spec.SchedulerName = "x" }, "spec.template.spec.schedulerName"},
		"node selector":     {func(s *kubevirtv1.VirtualMachineSpec) { s.Template.Spec.NodeSelector = map[string]string{"a": "b"} }, "spec.template.spec.nodeSelector"},
		"annotation": {func(s *kubevirtv1.VirtualMachineSpec) {
			s.Template.Annotations = map[string]string{contract.AnnotationVMM: "qemu"}
		}, "spec.template.metadata.annotations." + contract.AnnotationVMM},
		"a volume's image": {func(s *kubevirtv1.VirtualMachineSpec) { s.Template.Spec.Volumes[0].ContainerDisk.Image = "y" }, "spec.template.spec.volumes[0].containerDisk.image"},
		"a volume more": {func(s *kubevirtv1.VirtualMachineSpec) {
			s.Template.Spec.Volumes = append(s.Template.Spec.Volumes, kubevirtv1.Volume{})
		}, "spec.template.spec.volumes"},
		"many": {func(s *kubevirtv1.VirtualMachineSpec) {
			t := &s.Template.Spec
			t.Hostname, t.Subdomain, t.Architecture, t.DNSPolicy = "a", "b", "c", "d"
		}, "spec.template.spec.architecture, spec.template.spec.dnsPolicy, spec.template.spec.hostname"},
	} {
		t.Run(name, func(t *testing.T) {
			vm := newVM("Always")
			vm.Spec.Template.Spec.Domain = kubevirtv1.DomainSpec{CPU: &kubevirtv1.CPU{Sockets: 2}, Memory: &kubevirtv1.Memory{Guest: &memory}}
			vm.Spec.Template.Spec.Volumes = []kubevirtv1.Volume{{Name: "a", ContainerDisk: &kubevirtv1.ContainerDiskSource{Image: "x"}}}
			revision, err := run.NewRevision(vm)
			if err != nil {
				t.Fatal(err)
			}
			o := state{vm: vm, instance: made(vm, kubevirtv1.PhaseRunning, true), now: noon, defaults: func(i *kubevirtv1.VirtualMachineInstance) {
				if i.Spec.SchedulerName == "" {
					i.Spec.SchedulerName = "default"
				}
				i.Status.RuntimeUser = int64(len(i.Spec.Hostname))
			}}
			o.started = run.ReadRevision(revision, vm)
			c.change(&vm.Spec)
			vm.Generation = 2
			got := status(decideRun(o))
			var paths string
			if condition := kubevirtv1.FindCondition(got.Conditions, "RestartRequired"); condition != nil {
				paths, _, _ = strings.Cut(condition.Message, " changed")
			}
			if paths != c.want {
				t.Errorf("changes %q, want %q", paths, c.want)
			}
			if wantObserved := map[bool]int64{true: 2, false: 1}[c.want == ""]; got.ObservedGeneration != wantObserved || got.DesiredGeneration != 2 {
				t.Errorf("observed generation %d of %d", got.ObservedGeneration, got.DesiredGeneration)
			}
		})
	}
}

// TestShutDownAtOnce: a guest that shut down before it was seen to run has not failed to start.
func TestShutDownAtOnce(t *testing.T) {
	for _, strategy := range []kubevirtv1.RunStrategy{"Always", "RerunOnFailure", "Once"} {
		o := state{vm: newVM(strategy), defaults: noDefaults, now: noon}
		o.vm.Status.StartFailure = &kubevirtv1.StartFailure{ConsecutiveFailCount: 1, LastFailedVMIUID: "x"}
		o.vm.Status.Conditions = []kubevirtv1.Condition{{Type: "Failure", Status: "True", Reason: reasonFailedStart, Message: "of before"}}
		o.instance = made(o.vm, kubevirtv1.PhaseSucceeded, false)
		r := decideRun(o)
		to := status(r)
		if c := kubevirtv1.FindCondition(to.Conditions, "Failure"); c != nil {
			t.Errorf("%s: %+v", strategy, c)
		}
		if events := eventsOf(r, to); len(events) > 0 {
			t.Errorf("%s: events %v", strategy, events)
		}
	}
}

// TestRevision: a revision keeps the spec, and is believed only if it is the VM's.
func TestRevision(t *testing.T) {
	vm := newVM("Always")
	revision, err := run.NewRevision(vm)
	if err != nil {
		t.Fatal(err)
	}
	if want := "revision-start-vm-vm-uid-1"; revision.Name != want {
		t.Errorf("name %s, want %s", revision.Name, want)
	}
	if got := run.ReadRevision(revision, vm); got == nil || kubevirtv1.RunStrategyOf(got) != "Always" {
		t.Errorf("read as %+v", got)
	}
	var data map[string]any
	if err := json.Unmarshal(revision.Data.Raw, &data); err != nil {
		t.Fatal(err)
	}
	if again, err := json.Marshal(data); err != nil || string(again) != string(revision.Data.Raw) {
		t.Errorf("the API server would write %s, %v, in place of %s", again, err, revision.Data.Raw)
	}
	strange := revision.DeepCopy()
	strange.OwnerReferences = nil
	broken := revision.DeepCopy()
	broken.Data.Raw = []byte("{")
	empty := revision.DeepCopy()
	empty.Data.Raw = []byte("{}")
	if run.ReadRevision(strange, vm) != nil || run.ReadRevision(broken, vm) != nil || run.ReadRevision(empty, vm) != nil {
		t.Error("a revision that is another's, broken or empty is believed")
	}
}

// TestInstance: an instance has what its VM's template says, and no more of the VM.
func TestInstance(t *testing.T) {
	vm := newVM("Always")
	vm.Labels, vm.Annotations = map[string]string{"vm": "label"}, map[string]string{"vm": "annotation"}
	vm.Generation = 42
	vm.Spec.Template.Annotations = map[string]string{"a": "b"}
	vm.Spec.Template.Finalizers, vm.Spec.Template.Name = []string{"hostile.io/finalizer"}, "other"
	instance := run.NewInstance(vm, false)
	if got, want := fmt.Sprint(instance.Labels, instance.Annotations), "map[app:web] map[a:b "+contract.AnnotationVMGeneration+":42]"; got != want {
		t.Errorf("labels and annotations %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(instance.Namespace, instance.Name, instance.Finalizers), "nsweb["+contract.FinalizerMachine+" "+contract.FinalizerInstance+"]"; got != want {
		t.Errorf("name and finalizers %s, want %s", got, want)
	}
	owner := metav1.GetControllerOf(instance)
	if owner == nil || owner.UID != vmUID || owner.Kind != "VirtualMachine" || owner.APIVersion != "kubevirt.io/v1" || !*owner.BlockOwnerDeletion {
		t.Errorf("owner %+v", owner)
	}
	if run.Generation(instance) != 42 {
		t.Errorf("of generation %d", run.Generation(instance))
	}
	instance.Labels["app"], instance.Spec.Domain.Firmware.Serial = "changed", "changed"
	if vm.Spec.Template.Labels["app"] != "web" || vm.Spec.Template.Spec.Domain.Firmware.Serial == "changed" {
		t.Error("the VM shares memory with its instance")
	}
}

// TestNews: while an instance starts, its progress is not worth a write; a fault is.
func TestNews(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason string) kubevirtv1.Condition {
		return kubevirtv1.Condition{Type: kind, Status: status, Reason: reason}
	}
	binding := func(o *state) {
		o.vm.Status.PrintableStatus = kubevirtv1.StatusWaitingForVolumeBinding
	}
	for name, c := range map[string]struct {
		phase  kubevirtv1.Phase
		change func(*state)
		write  bool
		later  bool
	}{
		"nothing":                   {kubevirtv1.PhaseScheduling, func(*state) {}, false, false},
		"scheduled":                 {kubevirtv1.PhaseScheduled, func(*state) {}, false, false},
		"not yet ready":             {kubevirtv1.PhaseScheduled, add(condition("Ready", "False", "GuestNotRunning")), false, false},
		"what it can't do":          {kubevirtv1.PhaseScheduling, add(condition("LiveMigratable", "False", "x")), false, false},
		"no image":                  {kubevirtv1.PhaseScheduling, add(condition("Synchronized", "False", "ErrImagePull")), true, false},
		"no pod":                    {kubevirtv1.PhasePending, add(condition("Synchronized", "False", "FailedCreate")), true, false},
		"no node":                   {kubevirtv1.PhaseScheduling, add(condition(string(corev1.PodScheduled), "False", "Unschedulable")), true, false},
		"another spec":              {kubevirtv1.PhaseScheduling, func(o *state) { o.vm.Generation++ }, true, false},
		"running":                   {kubevirtv1.PhaseRunning, func(*state) {}, true, false},
		"bound at once":             {kubevirtv1.PhaseScheduling, binding, false, true},
		"bound, and still to start": {kubevirtv1.PhaseScheduling, func(o *state) { binding(o); o.now = noon.Add(brief) }, true, false},
		"unbound after all":         {kubevirtv1.PhaseScheduling, func(o *state) { o.volumes = []volume{{claim: unbound}} }, true, false},
		"node lost":                 {kubevirtv1.PhaseUnknown, func(*state) {}, true, false},
		"ended before it ran":       {kubevirtv1.PhaseFailed, func(*state) {}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := state{vm: newVM("Manual"), defaults: noDefaults, now: noon}
			o.instance = made(o.vm, kubevirtv1.PhasePending, false)
			o.vm.Status = *status(decideRun(o))
			o.instance.Status.Phase = c.phase
			c.change(&o)
			write, later := news(&o.vm.Status, status(decideRun(o)), o.instance, o.now)
			if write != c.write {
				t.Errorf("writes: %v, want %v", write, c.write)
			}
			if got := !later.IsZero(); got != c.later {
				t.Errorf("looks again at %v", later)
			}
			if c.later && !decide(o).again.Equal(noon.Add(brief)) {
				t.Errorf("looks again at %v, want %v", decide(o).again, noon.Add(brief))
			}
		})
	}
}

func add(c kubevirtv1.Condition) func(*state) {
	return func(o *state) { o.instance.Status.Conditions = append(o.instance.Status.Conditions, c) }
}

// TestNothingByTime: an hour changes no status.
func TestNothingByTime(t *testing.T) {
	for _, phase := range []kubevirtv1.Phase{"", kubevirtv1.PhaseScheduling, kubevirtv1.PhaseRunning, kubevirtv1.PhaseUnknown, kubevirtv1.PhaseSucceeded} {
		for _, strategy := range []kubevirtv1.RunStrategy{"Manual", "Once"} {
			o := state{vm: newVM(strategy), defaults: noDefaults, now: noon}
			if phase != "" {
				o.instance = made(o.vm, phase, true)
			}
			o.vm.Status = *status(decideRun(o))
			o.now = noon.Add(time.Hour)
			if d := decide(o); len(d.actions) > 0 || !d.again.IsZero() {
				t.Errorf("%s, %s: %s, again at %v", strategy, phase, described(d), d.again)
			}
		}
	}
}

// TestClip: what others say is bounded, and whole characters are kept.
func TestClip(t *testing.T) {
	for text, want := range map[string]string{"": "", "abcd": "abcd", "abcde": "abcd…", "abcä": "abc…", "aää": "aä…"} {
		if got := action.Clip(text, 4); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
