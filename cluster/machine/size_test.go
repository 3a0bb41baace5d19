package machine

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// TestLiveSize: a guest that runs is given what it can be given, and a restart is required of the rest
// alone.
func TestLiveSize(t *testing.T) {
	domain := func(sockets int32, memory string) kubevirtv1.DomainSpec {
		guest := resource.MustParse(memory)
		return kubevirtv1.DomainSpec{CPU: &kubevirtv1.CPU{Sockets: sockets, MaxSockets: 4}, Memory: &kubevirtv1.Memory{Guest: &guest}}
	}
	off := false
	refused := kubevirtv1.Condition{Type: kubevirtv1.ConditionHotVCPUChange, Status: metav1.ConditionFalse}
	none := func(*state) {}
	for name, c := range map[string]struct {
		sockets int32
		memory  string
		change  func(*state)
		given   string // to the instance
		restart string // because of
	}{
		"nothing":           {2, "1Gi", none, "", ""},
		"sockets":           {4, "1Gi", none, "4 1Gi", ""},
		"too many sockets":  {5, "1Gi", none, "", "cpu.sockets"},
		"fewer sockets":     {1, "1Gi", none, "", "cpu.sockets"},
		"less memory":       {2, "512Mi", none, "2 512Mi", ""},
		"more memory":       {2, "2Gi", none, "", "memory.guest"},
		"no balloon":        {2, "512Mi", func(o *state) { o.instance.Spec.Domain.Devices.AutoattachMemBalloon = &off }, "", "memory.guest"},
		"dedicated CPUs":    {4, "512Mi", func(o *state) { o.instance.Spec.Domain.CPU.DedicatedCPUPlacement = true }, "2 512Mi", "cpu.sockets"},
		"both, one goes":    {4, "2Gi", none, "4 1Gi", "memory.guest"},
		"at the next start": {4, "512Mi", func(o *state) { o.cluster.LiveUpdate = false }, "", "cpu.sockets, memory.guest"},
		"to be saved":       {4, "1Gi", func(o *state) { o.instance.Spec.StopStrategy = kubevirtv1.HibernateSave }, "", "cpu.sockets"},
		"starts":            {4, "1Gi", func(o *state) { o.instance.Status.Phase = kubevirtv1.PhaseScheduling }, "", "cpu.sockets"},
		"given": {4, "512Mi", func(o *state) {
			o.instance.Spec.Domain = domain(4, "512Mi")
			o.instance.Annotations[contract.AnnotationLiveSize] = "true"
		}, "", ""},
		"refused": {4, "512Mi", func(o *state) {
			o.instance.Spec.Domain = domain(4, "512Mi")
			o.instance.Annotations[contract.AnnotationLiveSize] = "true"
			o.instance.Status.Conditions = append(o.instance.Status.Conditions, refused)
		}, "", "cpu.sockets"},
		"taken back": {2, "1Gi", func(o *state) {
			o.instance.Spec.Domain = domain(2, "512Mi")
			o.instance.Annotations[contract.AnnotationLiveSize] = "true"
		}, "2 1Gi", ""},
		"refused, and fewer": {3, "1Gi", func(o *state) {
			o.instance.Spec.Domain = domain(4, "1Gi")
			o.instance.Annotations[contract.AnnotationLiveSize] = "true"
			o.instance.Status.Conditions = append(o.instance.Status.Conditions, refused)
		}, "3 1Gi", ""},
		"not given yet, taken back": {2, "1Gi", func(o *state) {
			o.instance.Spec.Domain = domain(4, "1Gi")
			o.instance.Annotations[contract.AnnotationLiveSize] = "true"
		}, "2 1Gi", ""},
		"given, not taken back": {2, "1Gi", func(o *state) {
			o.instance.Spec.Domain = domain(4, "1Gi")
			o.instance.Annotations[contract.AnnotationLiveSize] = "true"
			o.instance.Status.CurrentCPUTopology.Sockets = 4
		}, "", "cpu.sockets"},
		"other type": {4, "1Gi", func(o *state) {
			o.instance.Spec.Domain = domain(4, "1Gi")
			o.instance.Annotations[contract.AnnotationLiveSize] = "true"
			o.vm.Spec.Instancetype = &kubevirtv1.InstancetypeMatcher{Name: "large"}
		}, "", ""},
		"other type, with more": {4, "1Gi", func(o *state) {
			o.instance.Spec.Domain = domain(4, "1Gi")
			o.instance.Annotations[contract.AnnotationLiveSize] = "true"
			o.vm.Spec.Instancetype = &kubevirtv1.InstancetypeMatcher{Name: "large"}
			o.vm.Spec.Template.Spec.SchedulerName = "x"
		}, "", "spec.instancetype, annotations." + contract.AnnotationClusterInstancetype + ", schedulerName"},
	} {
		vm := newVM("Always")
		vm.Spec.Template.Spec.Domain = domain(2, "1Gi")
		revision, err := run.NewRevision(vm)
		if err != nil {
			t.Fatal(err)
		}
		o := state{
			vm: vm, instance: made(vm, kubevirtv1.PhaseRunning, true), now: noon, defaults: noDefaults,
			cluster: configuration.Configuration{LiveUpdate: true}, started: run.ReadRevision(revision, vm),
		}
		o.instance.Spec.Domain = domain(2, "1Gi")
		boot := resource.MustParse("1Gi")
		o.instance.Status.CurrentCPUTopology = &kubevirtv1.CPUTopology{Sockets: 2, Cores: 1, Threads: 1}
		o.instance.Status.Memory = &kubevirtv1.MemoryStatus{GuestAtBoot: &boot}
		if o.instance.Annotations == nil {
			o.instance.Annotations = make(map[string]string)
		}
		vm.Spec.Template.Spec.Domain = domain(c.sockets, c.memory)
		vm.Generation = 2
		c.change(&o)
		given := ""
		for _, a := range resize(o) {
			to := a.(action.ResizeInstance)
			given = fmt.Sprintf("%d %v", to.Sockets, to.Memory)
		}
		if given != c.given {
			t.Errorf("%s: given %q, want %q", name, given, c.given)
		}
		restart := strings.Join(restartChanges(o), ", ")
		for _, prefix := range []string{"spec.template.spec.domain.", "spec.template.spec.", "spec.template.metadata."} {
			restart = strings.ReplaceAll(restart, prefix, "")
		}
		if restart != c.restart {
			t.Errorf("%s: a restart is required by %q, want %q", name, restart, c.restart)
		}
	}
}
