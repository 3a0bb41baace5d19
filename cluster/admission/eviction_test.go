package admission

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/contract"
)

const podName = "virt-launcher-web-abc"

// morning is when evictions are asked for.
var morning = time.Date(2026, 7, 1, 8, 0, 0, 0, time.UTC)

// scene is a VM's pod that somebody evicts, and what is wrong there.
type scene struct {
	strategy string // of the instance; empty: the cluster's
	cluster  kubevirtv1.EvictionStrategy
	pod      func(*corev1.Pod)
	instance func(*kubevirtv1.VirtualMachineInstance)
	funcs    interceptor.Funcs
	noPod    bool
	noConfig bool
	dryRun   bool
	// clusterTimeout is the cluster's warningTimeoutSeconds; 0: as it is shipped, -1: none.
	clusterTimeout int32
	clusterMode    string
}

func (s scene) client(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), kubevirtv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "vmi-uid"}}
	if s.strategy != "" {
		vmi.Spec.EvictionStrategy = new(kubevirtv1.EvictionStrategy(s.strategy))
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: podName, Labels: map[string]string{contract.LabelApp: contract.LabelAppLauncher},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: "web", UID: "vmi-uid", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: "node-1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if s.pod != nil {
		s.pod(pod)
	}
	if s.instance != nil {
		s.instance(vmi)
	}
	objects := []client.Object{vmi}
	if !s.noPod {
		objects = append(objects, pod)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(vmi).WithObjects(objects...).WithInterceptorFuncs(s.funcs).Build()
}

// noSettings can't be read.
type noSettings struct{}

func (noSettings) Configuration(context.Context) (configuration.Configuration, error) {
	return configuration.Configuration{}, errors.New("no cache")
}

func (s scene) evict(t *testing.T, c client.Client) admission.Response {
	t.Helper()
	config := configuration.Default()
	if s.cluster != "" {
		config.EvictionStrategy = s.cluster
	}
	if s.clusterTimeout != 0 {
		config.Hibernation.WarningTimeoutSeconds = max(s.clusterTimeout, 0)
	}
	if s.clusterMode != "" {
		config.Hibernation.Mode = s.clusterMode
	}
	e := evictions{client: c, config: fixed(config), now: func() time.Time { return morning }}
	if s.noConfig {
		e.config = noSettings{}
	}
	return e.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Namespace: "team", Name: podName, Operation: admissionv1.Create, SubResource: "eviction", DryRun: &s.dryRun,
	}})
}

// gone is an object that is being deleted.
func gone(o metav1.Object) {
	o.SetDeletionTimestamp(&metav1.Time{Time: time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)})
	o.SetFinalizers([]string{"example.com/wait"})
}

// unreadable has a client fail to read the objects of a name.
func unreadable(name string) interceptor.Funcs {
	return interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if key.Name == name {
			return errors.New("the API server is busy")
		}
		return c.Get(ctx, key, o, opts...)
	}}
}

func TestEvictions(t *testing.T) {
	for name, c := range map[string]struct {
		scene   scene
		denied  bool
		noted   string // evacuationNodeName afterwards
		warning string
	}{
		"without a strategy":             {scene: scene{}},
		"None":                           {scene: scene{strategy: "None", cluster: "LiveMigrate"}},
		"LiveMigrateIfPossible":          {scene: scene{strategy: "LiveMigrateIfPossible"}},
		"LiveMigrate":                    {scene: scene{strategy: "LiveMigrate"}, denied: true},
		"External":                       {scene: scene{strategy: "External"}, denied: true, noted: "node-1"},
		"the cluster's LiveMigrate":      {scene: scene{cluster: "LiveMigrate"}, denied: true},
		"a dry run":                      {scene: scene{strategy: "External", dryRun: true}, denied: true},
		"a pod that is gone":             {scene: scene{strategy: "External", noPod: true}},
		"another's pod of that name":     {scene: scene{strategy: "External", pod: func(p *corev1.Pod) { p.Labels = nil }}},
		"a pod without an owner":         {scene: scene{strategy: "External", pod: func(p *corev1.Pod) { p.OwnerReferences = nil }}},
		"a pod of an earlier instance":   {scene: scene{strategy: "External", pod: func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }}},
		"a pod that has ended":           {scene: scene{strategy: "External", pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }}},
		"a pod that is being deleted":    {scene: scene{strategy: "External", pod: func(p *corev1.Pod) { gone(p) }}},
		"a VM that is being deleted":     {scene: scene{strategy: "External", instance: func(v *kubevirtv1.VirtualMachineInstance) { gone(v) }}},
		"the pod can't be read":          {scene: scene{strategy: "External", funcs: unreadable(podName)}, warning: "its pod could not be read"},
		"the VM can't be read":           {scene: scene{strategy: "External", funcs: unreadable("web")}, warning: "its VirtualMachineInstance could not be read"},
		"the configuration can't":        {scene: scene{noConfig: true}, warning: "the cluster's evictionStrategy could not be read"},
		"own strategy, no configuration": {scene: scene{strategy: "External", noConfig: true}, denied: true, noted: "node-1"},
	} {
		kubernetes := c.scene.client(t)
		got := c.scene.evict(t, kubernetes)
		if got.Allowed == c.denied {
			t.Errorf("%s: allowed is %v, want %v", name, got.Allowed, !c.denied)
		}
		if warnings := strings.Join(got.Warnings, "; "); !strings.Contains(warnings, c.warning) || (warnings != "") != (c.warning != "") {
			t.Errorf("%s: the warnings are %q, want %q", name, warnings, c.warning)
		}
		if c.scene.funcs.Get != nil {
			continue
		}
		if noted := evacuated(t, kubernetes); noted != c.noted {
			t.Errorf("%s: evacuationNodeName is %q, want %q", name, noted, c.noted)
		}
	}
}

func evacuated(t *testing.T, c client.Client) string {
	t.Helper()
	vmi := &kubevirtv1.VirtualMachineInstance{}
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "team", Name: "web"}, vmi); err != nil {
		t.Fatal(err)
	}
	return vmi.Status.EvacuationNodeName
}

// TestDeniedEvictionIsTriedAgain: drains take 429 for "later", and deschedulers know by the text
// whether somebody moves the VM.
func TestDeniedEvictionIsTriedAgain(t *testing.T) {
	for strategy, want := range map[string]string{
		"LiveMigrate": "VMI web is configured with an eviction strategy but is not live-migratable",
		"External":    "Eviction triggered evacuation of VMI team/web",
	} {
		s := scene{strategy: strategy}
		got := s.evict(t, s.client(t))
		if got.Result.Code != http.StatusTooManyRequests || got.Result.Reason != metav1.StatusReasonTooManyRequests {
			t.Errorf("%s: code %d, reason %s, want 429 %s", strategy, got.Result.Code, got.Result.Reason, metav1.StatusReasonTooManyRequests)
		}
		if !strings.HasPrefix(got.Result.Message, want) {
			t.Errorf("%s: the message is %q, want %q first", strategy, got.Result.Message, want)
		}
	}
}

// TestEvictionIsDeniedWithoutItsNote: a status that can't be written ends no VM.
func TestEvictionIsDeniedWithoutItsNote(t *testing.T) {
	patches := 0
	s := scene{strategy: "External", funcs: interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			patches++
			return apierrors.NewForbidden(schema.GroupResource{Resource: "virtualmachineinstances"}, "web", errors.New("no right"))
		},
	}}
	got := s.evict(t, s.client(t))
	if got.Allowed || patches != 1 {
		t.Errorf("allowed is %v after %d patches, want false after 1", got.Allowed, patches)
	}
	if warnings := strings.Join(got.Warnings, "; "); !strings.Contains(warnings, "no right") {
		t.Errorf("the warnings are %q, want the reason in them", warnings)
	}
}
