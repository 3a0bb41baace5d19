package installation

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/described"
)

const ownImage = `
developerConfiguration: {useEmulation: true, featureGates: [PluginVirtualizationStacks]}
virtualizationProfile: {name: own, virtLauncher: {virtLauncherImage: "example.org/launcher:1"}}
`

// says has a node that says this of the stack's image.
func (w *world) says(t *testing.T, node string, r described.Report) {
	t.Helper()
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Annotations: map[string]string{contract.AnnotationStack: r.Encode()}}}
	if err := w.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// TestStack: each node asks the image of a stack in a pod without rights, and the KubeVirt object says what
// came of it, by which admission judges VMs. Without the profile nothing of it is left.
func TestStack(t *testing.T) {
	w := newWorld(t, kv("kubevirt", 0))
	w.configured(t, ownImage)
	key := client.ObjectKey{Namespace: "elsewhere", Name: StackName}
	var pods appsv1.DaemonSet
	if err := w.Get(t.Context(), key, &pods); err != nil {
		t.Fatal(err)
	}
	spec := pods.Spec.Template.Spec
	if c := spec.Containers[0]; c.Image != "example.org/launcher:1" || *c.SecurityContext.AllowPrivilegeEscalation || *spec.AutomountServiceAccountToken || len(c.Resources.Limits) != 1 {
		t.Errorf("the pod that is asked has rights: %+v", spec)
	}
	if got := w.ready(t); got.Status != metav1.ConditionFalse || !strings.Contains(got.Message, "no node has asked") {
		t.Errorf("before a node has answered: %+v", got)
	}
	if err := w.Get(t.Context(), key, &pods); err != nil {
		t.Fatal(err)
	}
	pods.Status.DesiredNumberScheduled = 4
	if err := w.Status().Update(t.Context(), &pods); err != nil {
		t.Fatal(err)
	}
	strange := described.VMM{ID: "strange", Version: "9", Machines: map[string]described.Machine{"amd64": {Traits: vmm.Traits{Disks: []string{"virtio"}}}}}
	report := described.Report{Profile: "own", Image: "example.org/launcher:1", VMMs: []described.Found{
		{VMM: described.VMM{ID: "qemu"}, Error: "no such file"}, {VMM: strange, Driver: true, Hypervisors: map[string]string{"kvm": "", "emulation": "it emulates none"}},
	}}
	w.says(t, "one", report)
	report.VMMs = slices.Clone(report.VMMs)
	report.VMMs[1].Hypervisors = map[string]string{"emulation": "it emulates none"}
	w.says(t, "two", report)
	w.says(t, "three", described.Report{Profile: "own", Image: "example.org/launcher:0", Error: "an image from before"})
	w.reconcile(t)
	o := w.kubevirt(t, "kubevirt")
	s := o.Status.VirtualizationStack
	if s == nil || s.Nodes != 4 || s.AnsweringNodes != 2 || len(s.VMMs) != 2 {
		t.Fatalf("status is %+v, want 4 nodes, 2 that answer, 2 VMMs", s)
	}
	if v := s.VMMs[1]; v.Name != "strange" || v.Version != "9" || v.WorkingNodes != 1 || s.VMMs[0].WorkingNodes != 0 {
		t.Errorf("VMMs are %+v", s.VMMs)
	}
	if len(s.Failures) != 1 || s.Failures[0].Node != "two" || !strings.Contains(s.Failures[0].Reason, "strange under emulation: it emulates none") {
		t.Errorf("failures are %+v", s.Failures)
	}
	if got := w.ready(t); got.Status != metav1.ConditionTrue || !strings.Contains(got.Message, "on 1 of 4 nodes") {
		t.Errorf("when a node works: %+v", got)
	}
	c, _ := configuration.From(o)
	if v, known := c.Stack.Registry().Get("strange"); !known || v.Traits("amd64").HasSATA() || len(v.Traits("amd64").Disks) != 1 {
		t.Errorf("by the status VMMs are %v", c.Stack.Registry().Names())
	}
	w.configured(t, "developerConfiguration: {useEmulation: true}")
	if err := w.Get(t.Context(), key, &pods); !apierrors.IsNotFound(err) {
		t.Errorf("without the profile there are pods of it: %v", err)
	}
	if o := w.kubevirt(t, "kubevirt"); o.Status.VirtualizationStack != nil {
		t.Errorf("without the profile the status says %+v", o.Status.VirtualizationStack)
	}
}

// TestStackThatRunsNoVMs: the condition says why, with the first node's word.
func TestStackThatRunsNoVMs(t *testing.T) {
	w := newWorld(t, kv("kubevirt", 0))
	w.configured(t, ownImage)
	w.says(t, "one", described.Report{Profile: "own", Image: "example.org/launcher:1", Error: "there is no VMM in the image that vmlet drives"})
	w.reconcile(t)
	if got := w.ready(t); got.Status != metav1.ConditionFalse || !strings.Contains(got.Message, "no VM can run in example.org/launcher:1: node one: there is no VMM") {
		t.Errorf("%+v", got)
	}
}

// ready is the condition about the stack.
func (w *world) ready(t *testing.T) kubevirtv1.Condition {
	t.Helper()
	w.reconcile(t)
	for _, c := range w.kubevirt(t, "kubevirt").Status.Conditions {
		if c.Type == stackReady {
			return c
		}
	}
	t.Fatal("nothing is said of the stack")
	return kubevirtv1.Condition{}
}
