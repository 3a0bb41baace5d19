package pods

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/vmlet/vmlet/test/suites"
)

// container has the volume, or another one.
func container(name string, volumes ...string) corev1.Container {
	c := corev1.Container{Name: name}
	for _, v := range volumes {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v, MountPath: "/" + v})
	}
	return c
}

// sidecar is a native one, which is an init container that goes on.
func sidecar(name string, volumes ...string) corev1.Container {
	c := container(name, volumes...)
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}

func running(name, id string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, ContainerID: id}
}

func podOf(uid types.UID, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: "default", Name: "web"},
		Spec:       corev1.PodSpec{Containers: containers},
	}
}

func TestMounting(t *testing.T) {
	with := func(change func(*corev1.Pod), containers ...corev1.Container) *corev1.Pod {
		p := podOf(testUID, containers...)
		change(p)
		return p
	}
	init := func(c ...corev1.Container) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.InitContainers = c }
	}
	for _, test := range []struct {
		name string
		pod  *corev1.Pod
		want string
	}{
		{"no pod", nil, ""},
		{"the only container", podOf(testUID, container("vm", "vmlet")), "vm"},
		{"one of two", podOf(testUID, container("log", "logs"), container("vm", "disks", "vmlet")), "vm"},
		{"two have it", podOf(testUID, container("a", "vmlet"), container("b", "vmlet")), ""},
		{"none has it", podOf(testUID, container("a", "vmlet2")), ""},
		{"a sidecar has it", with(init(sidecar("vm", "vmlet")), container("main")), "vm"},
		{"an init container has it, too", with(init(container("prepare", "vmlet")), container("vm", "vmlet")), ""},
		{"somebody looks into the pod", with(func(p *corev1.Pod) {
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
		}, container("vm", "vmlet")), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := mounting(test.pod)
			if got := nameOf(c); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func nameOf(c *corev1.Container) string {
	if c == nil {
		return ""
	}
	return c.Name
}

func TestContainerOf(t *testing.T) {
	pod := podOf(testUID, container("a", "vmlet"), container("b", "vmlet"), container("new"))
	pod.Spec.InitContainers = []corev1.Container{sidecar("side", "vmlet"), container("b2")}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{running("a", "containerd://1111"), running("b", "cri-o://2222"), running("gone", "containerd://3333"), running("new", "")}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{running("side", "containerd://4444"), running("a", "containerd://5555")}
	pod.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{running("a", "containerd://6666")}
	for id, want := range map[string]string{
		"1111": "a", "2222": "b", "4444": "side",
		"": "", "111": "", "containerd://1111": "", "3333": "", "5555": "", "6666": "",
	} {
		if got := nameOf(containerOf(pod, id)); got != want {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
	}
	if c := containerOf(nil, "1111"); c != nil {
		t.Errorf("of no pod: %v", c)
	}
}

func TestStartsAgain(t *testing.T) {
	always, onFailure, never := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever
	rule := func(o corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) []corev1.ContainerRestartRule {
		return []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: o, Values: codes}}}
	}
	const in, notIn = corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn
	for _, test := range []struct {
		name string
		pod  corev1.RestartPolicy
		own  *corev1.ContainerRestartPolicy
		rule []corev1.ContainerRestartRule
		want string
	}{
		{"Always", corev1.RestartPolicyAlways, nil, nil, "pod's restartPolicy"},
		{"unset, which is Always", "", nil, nil, "pod's restartPolicy"},
		{"OnFailure", corev1.RestartPolicyOnFailure, nil, nil, ""},
		{"Never", corev1.RestartPolicyNever, nil, nil, ""},
		{"a sidecar", corev1.RestartPolicyNever, &always, nil, "container's restartPolicy"},
		{"the container's own", corev1.RestartPolicyAlways, &never, nil, ""},
		{"the container's own, OnFailure", corev1.RestartPolicyAlways, &onFailure, nil, ""},
		{"a rule about 0", corev1.RestartPolicyNever, &never, rule(in, 42, 0), "restartPolicyRules[0]"},
		{"a rule about all but others", corev1.RestartPolicyNever, &never, rule(notIn, 42), "restartPolicyRules[0]"},
		{"a rule about all but 0", corev1.RestartPolicyNever, &never, rule(notIn, 0), ""},
		{"a rule about others", corev1.RestartPolicyNever, &never, rule(in, 42), ""},
		{"a rule about nothing", corev1.RestartPolicyNever, &never, []corev1.ContainerRestartRule{{}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := podOf(testUID)
			pod.Spec.RestartPolicy = test.pod
			got := StartsAgain(pod, &corev1.Container{RestartPolicy: test.own, RestartPolicyRules: test.rule})
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// What the agent reads of a pod is kept, and nothing else.
func TestSlim(t *testing.T) {
	created, grace := metav1.Now(), int64(30)
	limits := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	rules := []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart}}
	vm := sidecar("vm", "vmlet")
	vm.RestartPolicyRules, vm.Resources.Limits = rules, limits
	vm.VolumeMounts[0].MountPath = ""
	vm.VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: testUID, Namespace: "default", Name: "web", ResourceVersion: "7", CreationTimestamp: created},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{vm, {Name: "log"}}, InitContainers: []corev1.Container{{Name: "prepare"}},
			EphemeralContainers: make([]corev1.EphemeralContainer, 1),
		},
		Status: corev1.PodStatus{
			ContainerStatuses:     []corev1.ContainerStatus{running("vm", "containerd://1111")},
			InitContainerStatuses: []corev1.ContainerStatus{running("prepare", "containerd://2222")},
		},
	}
	whole := want.DeepCopy()
	whole.Annotations, whole.Labels = map[string]string{"large": "text"}, map[string]string{"app": "web"}
	whole.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	whole.Spec.Volumes = []corev1.Volume{{Name: "disks"}}
	whole.Spec.Containers[0].VolumeMounts = container("vm", "disks", "vmlet").VolumeMounts
	whole.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PATH", Value: "/bin"}}
	whole.Spec.Containers[0].Resources.Requests = limits
	whole.Spec.Containers[1].Args = []string{"--verbose"}
	whole.Spec.EphemeralContainers[0].Name = "debug"
	whole.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}}
	whole.Status.ContainerStatuses[0].ImageID = "sha256:1"
	got, err := slim(whole)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, any(want)) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	gone := cache.DeletedFinalStateUnknown{Key: "x"}
	if o, err := slim(gone); o != any(gone) || err != nil {
		t.Errorf("%v, %v", o, err)
	}
}

// TestContainerWaits until the API server says whose container it is.
func TestContainerWaits(t *testing.T) {
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	defer cancel()
	p := New()
	type answer struct {
		pod       *corev1.Pod
		container *corev1.Container
		err       error
	}
	answers := make(chan answer, 1)
	go func() {
		pod, c, err := p.Container(ctx, testUID, "1111")
		answers <- answer{pod, c, err}
	}()
	p.put(podOf(otherID, container("vm", "vmlet")))
	p.put("no pod")
	several := podOf(testUID, container("a", "vmlet"), container("b", "vmlet"))
	p.put(several)
	several = several.DeepCopy()
	several.Status.ContainerStatuses = []corev1.ContainerStatus{running("b", "containerd://1111")}
	p.put(several)
	if got := <-answers; got.err != nil || got.pod != several || got.container.Name != "b" {
		t.Errorf("%+v", got)
	}
}

// TestContainerWithoutStatus: what the kubelet says of a pod's containers, later, is not waited for where
// one of them alone has the volume.
func TestContainerWithoutStatus(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no wait
	p := New()
	pod := podOf(testUID, container("log"), container("vm", "vmlet"))
	p.put(pod)
	if got, c, err := p.Container(ctx, testUID, "1111"); err != nil || got != pod || nameOf(c) != "vm" {
		t.Errorf("got %v, container %q, %v", got, nameOf(c), err)
	}
}

// TestContainerGivesUp when its context ends, and says what was missing.
func TestContainerGivesUp(t *testing.T) {
	why := errors.New("the test ends it")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	p := New()
	if _, _, err := p.Container(ctx, testUID, "1111"); !errors.Is(err, why) || !strings.Contains(err.Error(), "no pod "+testUID) {
		t.Errorf("%v", err)
	}
	p.put(podOf(testUID, container("a", "vmlet"), container("b", "vmlet")))
	if _, _, err := p.Container(ctx, testUID, "1111"); !errors.Is(err, why) || !strings.Contains(err.Error(), "default/web") {
		t.Errorf("%v", err)
	}
}

func TestGone(t *testing.T) {
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	defer cancel()
	p := New()
	if err := p.Gone(ctx, testUID); err != nil {
		t.Errorf("of one that was never there: %v", err)
	}
	pod := podOf(testUID)
	p.put(pod)
	p.put(podOf(otherID))
	ended, end := context.WithCancel(ctx)
	end()
	if err := p.Gone(ended, testUID); !errors.Is(err, context.Canceled) {
		t.Errorf("of one that is there: %v", err)
	}
	gone := make(chan error, 1)
	go func() { gone <- p.Gone(ctx, testUID) }()
	p.remove("no pod")
	p.remove(podOf(otherID))
	p.remove(cache.DeletedFinalStateUnknown{Key: "default/web", Obj: pod})
	if err := <-gone; err != nil {
		t.Error(err)
	}
}
