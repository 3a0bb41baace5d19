package installation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

const stack = `
developerConfiguration: {featureGates: [PluginVirtualizationStacks]}
virtualizationProfile:
  name: own
  pluginWebhooks:
    webhookContainerImage: example.org/webhooks:1
    validatingWebhooks:
      - name: vmi-validator
        restServicePath: /validate-vmi
        failurePolicy: Ignore
        rules: [{operations: [CREATE, UPDATE], apiGroups: [kubevirt.io], apiVersions: [v1], resources: [virtualmachineinstances]}]
    mutatingWebhooks:
      - name: vmi-mutator
        restServicePath: /mutate-vmi
        rules: [{operations: [CREATE], apiGroups: [kubevirt.io], apiVersions: [v1alpha3], resources: ['*']}]
`

// configured gives the KubeVirt object a configuration.
func (w *world) configured(t *testing.T, text string) {
	t.Helper()
	o := w.kubevirt(t, "kubevirt")
	o.Spec.Configuration = kubevirtv1.KubeVirtConfiguration{}
	if err := yaml.UnmarshalStrict([]byte(text), &o.Spec.Configuration); err != nil {
		t.Fatal(err)
	}
	if err := w.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t)
}

// pluginPods has as many pods of the plugin available.
func (w *world) pluginPods(t *testing.T, pods int32) {
	t.Helper()
	var d appsv1.Deployment
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: "elsewhere", Name: PluginName}, &d); err != nil {
		t.Fatal(err)
	}
	d.Status.AvailableReplicas = pods
	if err := w.Status().Update(t.Context(), &d); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t)
}

// called are the webhooks that are registered, each with its operations.
func (w *world) called(t *testing.T) (all []string) {
	t.Helper()
	add := func(name string, config admissionv1.WebhookClientConfig, policy *admissionv1.FailurePolicyType, rules []admissionv1.RuleWithOperations) {
		words := []string{name, config.Service.Name + *config.Service.Path, string(*policy)}
		for _, rule := range rules {
			for _, o := range rule.Operations {
				words = append(words, string(o))
			}
		}
		all = append(all, strings.Join(words, " "))
	}
	for _, name := range []string{ConfigurationName, PluginConfigurationName} {
		m, v := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
		for _, o := range []client.Object{m, v} {
			if err := w.Get(t.Context(), client.ObjectKey{Name: name}, o); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		}
		for _, h := range m.Webhooks {
			add("mutating "+h.Name, h.ClientConfig, h.FailurePolicy, h.Rules)
		}
		for _, h := range v.Webhooks {
			add("validating "+h.Name, h.ClientConfig, h.FailurePolicy, h.Rules)
		}
	}
	return all
}

// TestPlugin: a stack's webhooks take the place of just what overlaps with theirs, once their server has
// been up, and never of what protects users' data; they go with the profile and with the gate.
func TestPlugin(t *testing.T) {
	w := newWorld(t, kv("kubevirt", 0))
	w.reconcile(t)
	usual := w.called(t)
	expect := func(what string, want []string) {
		t.Helper()
		if got := w.called(t); !slices.Equal(got, want) {
			t.Errorf("%s: webhooks are\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	w.configured(t, stack)
	expect("the plugin is not up", usual)
	var d appsv1.Deployment
	here := client.ObjectKey{Namespace: "elsewhere", Name: PluginName}
	if err := w.Get(t.Context(), here, &d); err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template.Spec
	if c := pod.Containers[0]; c.Image != "example.org/webhooks:1" || *pod.AutomountServiceAccountToken {
		t.Errorf("its pods are %+v", pod)
	}
	w.pluginPods(t, 1)
	beside := []string{
		"mutating protection-virtualmachines-mutator.vmlet.io my-api/virtualmachines-mutate Fail CREATE UPDATE",
		"mutating virtualmachines-mutator.vmlet.io my-api/virtualmachines-mutate Fail UPDATE",
		"mutating protection-virtualmachineinstances-mutator.vmlet.io my-api/virtualmachineinstances-protect-origin Fail CREATE",
		"validating virtualmachines-validator.vmlet.io my-api/virtualmachines-validate Fail CREATE UPDATE",
		"validating protection-virtualmachineinstances-validator.vmlet.io my-api/virtualmachineinstances-protect Fail CREATE UPDATE",
		"validating virtualmachinepools-validator.vmlet.io my-api/virtualmachinepools-validate Fail CREATE UPDATE",
		"validating virtualmachineinstancereplicasets-validator.vmlet.io my-api/virtualmachineinstancereplicasets-validate Fail CREATE UPDATE",
		"validating eviction.vmlet.io my-api/pod-eviction-validate Ignore CREATE",
		"mutating vmi-mutator.plugin.vmlet.io plugin-admission-webhooks/mutate-vmi Fail CREATE",
		"validating vmi-validator.plugin.vmlet.io plugin-admission-webhooks/validate-vmi Ignore CREATE UPDATE",
	}
	expect("the plugin is up", beside)
	w.pluginPods(t, 0)
	expect("the plugin is down", beside)
	for name, without := range map[string]string{
		"no gate":       strings.Replace(stack, "PluginVirtualizationStacks", "HypervStrictCheck", 1),
		"no profile":    "{}",
		"foreign group": strings.Replace(stack, "apiGroups: [kubevirt.io]", "apiGroups: ['*']", 2),
	} {
		w.configured(t, stack)
		w.configured(t, without)
		if name == "foreign group" { // none of its webhooks is left
			if got := w.called(t); !slices.Equal(got[:len(usual)], usual) {
				t.Errorf("%s: webhooks are %q", name, got)
			}
			continue
		}
		expect(name, usual)
		for _, o := range []client.Object{&appsv1.Deployment{}, &corev1.Service{}, &corev1.Secret{}} {
			if err := w.Get(t.Context(), here, o); !apierrors.IsNotFound(err) {
				t.Errorf("%s: %T is left: %v", name, o, err)
			}
		}
	}
}

// TestPluginFails: vmlet's own webhooks do not wait for a plugin, and go on beside one that was
// registered; the status is written.
func TestPluginFails(t *testing.T) {
	own := newWorld(t)
	own.reconcile(t)
	object := kv("kubevirt", 0)
	if err := yaml.UnmarshalStrict([]byte(stack), &object.Spec.Configuration); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, object)
	serve, broken := w.Serve, errors.New("no certificate")
	fail := func(what string, want []string) {
		t.Helper()
		w.Serve = func(context.Context, string) (certificate, key []byte, err error) { return nil, nil, broken }
		if _, err := w.Reconcile(t.Context(), reconcile.Request{}); !errors.Is(err, broken) {
			t.Errorf("%s: %v, want %v", what, err, broken)
		}
		if got := w.called(t); !slices.Equal(got, want) {
			t.Errorf("%s: webhooks are\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		w.Serve = serve
	}
	fail("at first", own.called(t))
	if got := w.kubevirt(t, "kubevirt"); !strings.HasPrefix(said(got, available), "True") {
		t.Errorf("the status is %+v", got.Status)
	}
	w.reconcile(t)
	w.pluginPods(t, 1)
	beside := w.called(t)
	if err := w.WithWatch.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: PluginName}}); err != nil {
		t.Fatal(err)
	}
	fail("later", beside)
}

// TestPluginLosesRules: vmlet's own webhooks are called for them before, or a write that fails would leave
// requests that nobody judges.
func TestPluginLosesRules(t *testing.T) {
	w := newWorld(t, kv("kubevirt", 0))
	w.configured(t, stack)
	w.pluginPods(t, 1)
	before := w.called(t)
	o := w.kubevirt(t, "kubevirt")
	o.Spec.Configuration.VirtualizationProfile.PluginWebhooks.ValidatingWebhooks[0].Rules[0].Operations = []admissionv1.OperationType{admissionv1.Update}
	if err := w.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	busy := apierrors.NewTimeoutError("busy", 1)
	w.Client = interceptor.NewClient(w.WithWatch, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if o.GetName() == ConfigurationName {
				return busy
			}
			return c.Update(ctx, o, opts...)
		},
	})
	if _, err := w.Reconcile(t.Context(), reconcile.Request{}); !errors.Is(err, busy) {
		t.Errorf("the error is %v, want %v", err, busy)
	}
	if got := w.called(t); !slices.Equal(got, before) {
		t.Errorf("webhooks are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(before, "\n"))
	}
	w.Client = w.WithWatch
	w.reconcile(t)
	for _, want := range []string{
		"validating virtualmachineinstances-validator.vmlet.io my-api/virtualmachineinstances-validate Fail CREATE",
		"validating vmi-validator.plugin.vmlet.io plugin-admission-webhooks/validate-vmi Ignore UPDATE",
	} {
		if got := w.called(t); !slices.Contains(got, want) {
			t.Errorf("webhooks are\n%s\nwant among them\n%s", strings.Join(got, "\n"), want)
		}
	}
	w.expect(t, "later")
}

// TestPluginKeepsSelectors: what an administrator exempts stays exempt while a plugin comes and goes, and of
// what is protected in any case.
func TestPluginKeepsSelectors(t *testing.T) {
	w := newWorld(t, kv("kubevirt", 0))
	w.reconcile(t)
	c := w.validating(t)
	exempt := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	for i := range c.Webhooks {
		c.Webhooks[i].NamespaceSelector, c.Webhooks[i].ObjectSelector = exempt, exempt
	}
	if err := w.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	expect := func(what string) {
		t.Helper()
		for _, h := range w.validating(t).Webhooks {
			if len(h.NamespaceSelector.MatchLabels) != 1 || len(h.ObjectSelector.MatchLabels) != 1 {
				t.Errorf("%s: %s has the selectors %v and %v, want %v", what, h.Name, h.NamespaceSelector, h.ObjectSelector, exempt)
			}
		}
	}
	w.configured(t, stack)
	w.pluginPods(t, 1)
	expect("with a plugin")
	w.configured(t, "{}")
	expect("afterwards")
}

// TestPluginCertificate: it is replaced in time, and with it the pods that have the former one.
func TestPluginCertificate(t *testing.T) {
	w := newWorld(t)
	mark := func() string {
		t.Helper()
		mark, err := w.pluginCertificate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return mark
	}
	first := mark()
	if again := mark(); again != first {
		t.Errorf("another certificate: %s, %s", first, again)
	}
	var s corev1.Secret
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: "elsewhere", Name: PluginName}, &s); err != nil {
		t.Fatal(err)
	}
	now := time.Now() // of an hour
	if text := s.Data["tls.crt"]; !fresh(text, now.Add(35*time.Minute)) || fresh(text, now.Add(45*time.Minute)) || fresh(nil, now) {
		t.Error("a certificate is not replaced after two thirds of its life")
	}
	s.Data["tls.crt"] = []byte("no certificate")
	if err := w.Update(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	if mark() == first {
		t.Error("a broken certificate is kept")
	}
}
