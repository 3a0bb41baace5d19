package status

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/scene"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestFrozen: the status says it, and in the API's word alone.
func TestFrozen(t *testing.T) {
	s := scene.On(kubevirtv1.PhaseRunning, scene.RunsSince(0), scene.Heard(scene.Running), scene.AgentSays(nil), scene.GuestSpec)
	if got := Of(s.View).FSFreezeStatus; got != "frozen" {
		t.Errorf("%q", got)
	}
	s.View.Pod.Report.VM.Status.Guest.FsFreezeStatus = "anything else"
	if got := Of(s.View).FSFreezeStatus; got != "" {
		t.Errorf("%q", got)
	}
}

// TestStatusGolden: the whole status of a VM that runs.
func TestStatusGolden(t *testing.T) {
	got, err := yaml.Marshal(Of(scene.Full().View))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "running.yaml")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs (go test -update rewrites it):\n%s", file, got)
	}
}

// TestFirstStatus: what follows from the instance alone is in the status that is written first.
func TestFirstStatus(t *testing.T) {
	s := scene.Full().Change(func(v *kubevirtv1.VirtualMachineInstance) {
		controller := true
		v.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachine", UID: "vm-uid", Controller: &controller}}
		v.Annotations = map[string]string{"kubevirt.io/vm-generation": "7"}
		v.Spec.Domain.CPU = &kubevirtv1.CPU{Cores: 2}
		v.Status = kubevirtv1.VirtualMachineInstanceStatus{}
	}).WithPod()
	got := Of(s.View)
	if got.VirtualMachineRevisionName != "revision-start-vm-vm-uid-7" {
		t.Errorf("revision %s", got.VirtualMachineRevisionName)
	}
	if c := got.CurrentCPUTopology; c == nil || *c != (kubevirtv1.CPUTopology{Sockets: 1, Cores: 2, Threads: 1}) {
		t.Errorf("topology %+v", c)
	}
	if m := got.Memory; m == nil || m.GuestAtBoot.String() != "2Gi" || m.GuestCurrent.String() != "2Gi" || m.GuestRequested.String() != "2Gi" {
		t.Errorf("memory %+v", m)
	}
}

// TestTransitions: a condition that says the same in other words keeps its time.
func TestTransitions(t *testing.T) {
	s := written(scene.New().WithPod())
	was := condition.Find(s.Instance.Status.Conditions, kubevirtv1.ConditionReady).LastTransitionTime
	s.View.Now = scene.Time.Add(time.Hour)
	s = s.WithPod(scene.RunsSince(0), scene.Ending)
	if c := condition.Find(Of(s.View).Conditions, kubevirtv1.ConditionReady); c.Reason != condition.ReasonPodTerminating || !c.LastTransitionTime.Equal(&was) {
		t.Errorf("%+v", c)
	}
	s = s.WithPod(scene.RunsSince(0), scene.Heard(scene.Running), scene.PodReady)
	if c := condition.Find(Of(s.View).Conditions, kubevirtv1.ConditionReady); c.Status != metav1.ConditionTrue || c.LastTransitionTime.Equal(&was) {
		t.Errorf("%+v", c)
	}
}

// written has the status be what would be written now.
func written(s scene.Scene) scene.Scene {
	s.Instance.Status = *Of(s.View)
	return s
}
