package guest

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// TestResizeGuest: what the guest is given next, and what the conditions say.
func TestResizeGuest(t *testing.T) {
	runsWith := func(vcpus uint32, size, target string, more ...func(*view.Pod)) scene.Scene {
		return scene.On(kubevirtv1.PhaseRunning, append([]func(*view.Pod){scene.RunsSince(time.Hour), scene.Heard(scene.Running), sized(vcpus, size, target)}, more...)...)
	}
	in := func(s nodev1.State) func(*view.Pod) { return func(p *view.Pod) { p.Report.VM.Status.State = s } }
	for name, c := range map[string]struct {
		s                scene.Scene
		want, conditions string
	}{
		"has it":            {runsWith(2, "1Gi", "").Change(wants(2, "1Gi")), "", ""},
		"more vCPUs":        {runsWith(2, "1Gi", "").Change(wants(4, "1Gi")), "4 vCPUs", "HotVCPUChange=True"},
		"fewer vCPUs":       {runsWith(4, "1Gi", "").Change(wants(2, "1Gi")), "", ""},
		"less memory":       {runsWith(2, "1Gi", "").Change(wants(2, "512Mi")), "512Mi of memory", "HotMemoryChange=True"},
		"memory given back": {runsWith(2, "1Gi", "512Mi").Change(wants(2, "1Gi")), "1Gi of memory", "HotMemoryChange=True"},
		"rounded":           {runsWith(2, "977Mi", "").Change(wants(2, "1024M")), "", ""},
		"both":              {runsWith(2, "1Gi", "").Change(wants(4, "512Mi")), "4 vCPUs", "HotVCPUChange=True HotMemoryChange=True"},
		"as it was started": {runsWith(2, "1Gi", "").Change(wants(4, "1Gi"), asStarted), "", ""},
		"refused": {runsWith(2, "1Gi", "").Change(wants(4, "1Gi"), reported(kubevirtv1.ConditionHotVCPUChange, "4 vCPUs: no room")),
			"", "HotVCPUChange=False"},
		"refused, and another": {runsWith(2, "1Gi", "").Change(wants(3, "1Gi"), reported(kubevirtv1.ConditionHotVCPUChange, "4 vCPUs: no room"), anotherSpec),
			"3 vCPUs", "HotVCPUChange=True"},
		"refused, the other goes on": {runsWith(2, "1Gi", "").Change(wants(4, "512Mi"), reported(kubevirtv1.ConditionHotVCPUChange, "4 vCPUs: no room")),
			"512Mi of memory", "HotVCPUChange=False HotMemoryChange=True"},
		"paused":         {runsWith(2, "1Gi", "", in(scene.Paused)).Change(wants(4, "1Gi")), "", "HotVCPUChange=True"},
		"being saved":    {runsWith(2, "1Gi", "").Change(wants(4, "1Gi"), scene.StopBy(kubevirtv1.HibernateSave)), "", "HotVCPUChange=True"},
		"ends":           {runsWith(2, "1Gi", "", scene.Ending).Change(wants(4, "1Gi")), "", "HotVCPUChange=True"},
		"asked just now": {runsWith(2, "1Gi", "", func(p *view.Pod) { p.Resized = true }).Change(wants(4, "1Gi")), "", "HotVCPUChange=True"},
		"not heard":      {scene.On(kubevirtv1.PhaseRunning, scene.RunsSince(time.Hour)).Change(wants(4, "1Gi")), "", ""},
	} {
		var conditions []string
		for _, a := range ResizeConditions(c.s.View, kubevirtv1.PhaseRunning) {
			conditions = append(conditions, a.Type+"="+string(a.Status))
		}
		if got := strings.Join(conditions, " "); got != c.conditions {
			t.Errorf("%s: conditions %q, want %q", name, got, c.conditions)
		}
		text := ""
		if got, is := Resize(c.s.View).(action.Resize); is {
			text = got.Sizing.String()
		}
		if text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}

// sized has the guest have vCPUs and memory, by its agent's report.
func sized(vcpus uint32, size, target string) func(*view.Pod) {
	return func(p *view.Pod) {
		p.Report.VM.Status.EffectiveSpec = &specv1.VirtualMachineSpec{
			Cpu: &specv1.CPU{Sockets: vcpus, Cores: 1, Threads: 1}, Memory: &specv1.Memory{Size: size, Target: target},
		}
	}
}

// wants is an instance that wants so much, since its guest runs.
func wants(sockets int32, memory string) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) {
		guest := resource.MustParse(memory)
		v.Spec.Domain.CPU = &kubevirtv1.CPU{Sockets: sockets, Cores: 1, Threads: 1, MaxSockets: 8}
		v.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: &guest}
		v.Annotations = map[string]string{contract.AnnotationLiveSize: "true"}
	}
}

func anotherSpec(v *kubevirtv1.VirtualMachineInstance) { v.Generation++ }

func asStarted(v *kubevirtv1.VirtualMachineInstance) {
	delete(v.Annotations, contract.AnnotationLiveSize)
}

// reported is an instance whose status says that a size was refused, of its spec as it is.
func reported(of, message string) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) {
		c := condition.New(of, metav1.ConditionFalse, condition.ReasonRefused, message)
		c.ObservedGeneration = v.Generation
		v.Status.Conditions = append(v.Status.Conditions, c)
	}
}
