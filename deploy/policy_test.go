package deploy

import (
	"context"
	"errors"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"

	"k8s.io/client-go/kubernetes/scheme"

	"github.com/vmlet/vmlet/contract"
)

// TestLauncherPolicy: what keeps a VM's pod from being hidden while its VM may run, by the API server's own
// evaluation. One that can't be evaluated would refuse the request.
func TestLauncherPolicy(t *testing.T) {
	const controller, tenant, admin = "system:serviceaccount:elsewhere:my-vmlet-controller", "tenant", "admin"
	all := rendered(t, "testdata/renamed")
	policy := decode[admissionregistrationv1.ValidatingAdmissionPolicy](t, all, "ValidatingAdmissionPolicy my-vmlet-launcher").Spec
	ref := decode[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, all, "ValidatingAdmissionPolicyBinding my-vmlet-launcher").Spec
	params := decode[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding "+ref.ParamRef.Name)
	selector, err := metav1.LabelSelectorAsSelector(policy.MatchConstraints.ObjectSelector)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		user   string
		change func(*corev1.Pod)
		denied bool
	}{
		{"something else", tenant, func(p *corev1.Pod) { p.Labels["app"] = "web"; p.Annotations["note"] = "x" }, false},
		{"another finalizer", tenant, func(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, "example.org/x") }, false},
		{"the finalizer", tenant, func(p *corev1.Pod) { p.Finalizers = nil }, true},
		{"the finalizer, for another", tenant, func(p *corev1.Pod) { p.Finalizers = []string{"example.org/x"} }, true},
		{"all labels", tenant, func(p *corev1.Pod) { p.Labels = nil }, true},
		{"its label", tenant, func(p *corev1.Pod) { delete(p.Labels, contract.LabelApp) }, true},
		{"its label's value", tenant, func(p *corev1.Pod) { p.Labels[contract.LabelApp] = "x" }, true},
		{"whose it is", tenant, func(p *corev1.Pod) { p.Labels[contract.LabelCreatedBy] = "x" }, true},
		{"its instance's id", tenant, func(p *corev1.Pod) { delete(p.Labels, contract.LabelInstanceID) }, true},
		{"its instance's name", tenant, func(p *corev1.Pod) { p.Annotations = nil }, true},
		{"no owner, as after --cascade=orphan", tenant, func(p *corev1.Pod) { p.OwnerReferences = nil }, false},
		{"an owner that controls nothing", tenant, func(p *corev1.Pod) {
			p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{Kind: "ConfigMap", Name: "x"})
		}, false},
		{"another owner", tenant, func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }, true},
		{"an owner of another kind", tenant, func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" }, true},
		{"an owner of another name", tenant, func(p *corev1.Pod) { p.OwnerReferences[0].Name = "other" }, true},
		{"an owner of another group", tenant, func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "example.org/v1" }, true},
		{"the finalizer, by vmlet-controller", controller, func(p *corev1.Pod) { p.Finalizers = nil }, false},
		{"all, by who may delete Nodes", admin, func(p *corev1.Pod) { p.Finalizers, p.Labels = nil, nil }, false},
	} {
		old := launcherPod()
		changed := old.DeepCopy()
		test.change(changed)
		if !selector.Matches(labels.Set(old.Labels)) {
			t.Fatalf("%v does not match a VM's pod", selector)
		}
		got, err := denies(t.Context(), policy, &params, old, changed, &user.DefaultInfo{Name: test.user})
		if err != nil || got != test.denied {
			t.Errorf("%s: denied: %v (%v), want %v", test.name, got, err, test.denied)
		}
	}
	plain := func(change func(*corev1.Pod)) *corev1.Pod {
		p := launcherPod()
		p.Finalizers = nil
		change(p)
		return p
	}
	none := func(*corev1.Pod) {}
	unlabelled := func(p *corev1.Pod) { delete(p.Labels, contract.LabelApp) }
	orphaned := func(p *corev1.Pod) { p.OwnerReferences = nil }
	for _, test := range []struct {
		name   string
		user   string
		old    *corev1.Pod // nil: it is made
		pod    *corev1.Pod
		denied bool
	}{
		{"made as a VM's", tenant, nil, plain(none), true},
		{"made as a VM's, with its finalizer", tenant, nil, launcherPod(), true},
		{"made with the label alone", tenant, nil, plain(orphaned), false},
		{"made with the owner alone", tenant, nil, plain(unlabelled), false},
		{"made with another owner", tenant, nil, plain(func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" }), false},
		{"made by vmlet-controller", controller, nil, launcherPod(), false},
		{"made by who may delete Nodes", admin, nil, plain(none), false},
		{"made a VM's by its label", tenant, plain(unlabelled), plain(none), true},
		{"made a VM's by its owner", tenant, plain(orphaned), plain(none), true},
		{"made a VM's by both", tenant, plain(func(p *corev1.Pod) { unlabelled(p); orphaned(p) }), plain(none), true},
		{"made another VM's by its owner", tenant, plain(none), plain(func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }), true},
		{"made another VM's by its label", tenant, plain(func(p *corev1.Pod) { p.Labels[contract.LabelCreatedBy] = "other" }), plain(none), true},
		{"a VM's that was let go", tenant, plain(none), plain(func(p *corev1.Pod) { p.Labels["app"] = "web" }), false},
	} {
		got, err := denies(t.Context(), policy, &params, test.old, test.pod, &user.DefaultInfo{Name: test.user})
		if err != nil || got != test.denied {
			t.Errorf("%s: denied: %v (%v), want %v", test.name, got, err, test.denied)
		}
	}
	// A pod that was let go, or another's.
	free := launcherPod()
	free.Finalizers = nil
	bare := free.DeepCopy()
	bare.Labels = nil
	if got, err := denies(t.Context(), policy, &params, free, bare, &user.DefaultInfo{Name: tenant}); err != nil || got {
		t.Errorf("a pod without the finalizer: denied: %v (%v)", got, err)
	}
}

// launcherPod is a VM's pod, as far as the policy looks at it.
func launcherPod() *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "space", Name: "virt-launcher-web-0123456789abcdef",
			Labels: map[string]string{
				contract.LabelApp: contract.LabelAppLauncher, contract.LabelCreatedBy: "uid", contract.LabelInstanceID: "web",
			},
			Annotations: map[string]string{contract.AnnotationDomain: "web"},
			Finalizers:  []string{contract.FinalizerPod},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: "web", UID: "uid", Controller: new(true)},
			},
		},
	}
}

// administrators may do anything, and others nothing.
type administrators struct{}

func (administrators) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "admin" && a.GetVerb() == "delete" && a.GetResource() == "nodes" && a.GetNamespace() == "" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// denies evaluates a policy on a pod that is made (old is nil) or changed as the API server does.
func denies(ctx context.Context, p admissionregistrationv1.ValidatingAdmissionPolicySpec, params runtime.Object, old, changed *corev1.Pod, who user.Info) (bool, error) {
	var all []cel.ExpressionAccessor
	for _, c := range p.MatchConditions {
		all = append(all, &validating.ValidationCondition{Expression: c.Expression})
	}
	for _, v := range p.Validations {
		all = append(all, &validating.ValidationCondition{Expression: v.Expression})
	}
	compiled := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())).
		CompileCondition(all, cel.OptionalVariableDeclarations{HasParams: true, HasAuthorizer: true}, environment.NewExpressions)
	if err := errors.Join(compiled.CompilationErrors()...); err != nil {
		return false, err
	}
	kind, resource := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	var before runtime.Object // not a *corev1.Pod that is nil
	operation := admission.Create
	if old != nil {
		before, operation = old, admission.Update
	}
	record := admission.NewAttributesRecord(changed, before, kind, changed.Namespace, changed.Name, resource, "", operation, nil, false, who)
	versioned, err := admission.NewVersionedAttributes(record, kind, admission.NewObjectInterfacesFromScheme(scheme.Scheme))
	if err != nil {
		return false, err
	}
	request := cel.CreateAdmissionRequest(record, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))
	results, _, err := compiled.ForInput(ctx, versioned, request, cel.OptionalVariableBindings{VersionedParams: params, Authorizer: administrators{}},
		nil, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return false, err
	}
	for i, r := range results {
		if r.Error != nil {
			return false, r.Error
		}
		if holds := r.EvalResult.Value() == true; !holds {
			return i >= len(p.MatchConditions), nil // a condition that does not hold has nothing validated
		}
	}
	return false, nil
}
