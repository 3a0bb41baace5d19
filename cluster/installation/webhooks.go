package installation

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/admission"
)

// ConfigurationName is the name of both webhook configurations.
const ConfigurationName = "vmlet"

// webhook is what mutating and validating ones have in common.
type webhook struct {
	name, path     string
	operations     []admissionv1.OperationType
	group, version string
	resource       string
	policy         admissionv1.FailurePolicyType
	effects        admissionv1.SideEffectClass
	// condition is CEL; only requests for which it is true are sent to vmlet-api.
	condition admissionv1.MatchCondition
}

// mutating and validating: nothing of vmlet's own kinds is stored that vmlet has not seen
// (Fail); nothing else depends on vmlet (Ignore).
func mutating() []webhook {
	return []webhook{
		own("virtualmachines-mutator.vmlet.io", admission.PathMutateMachine, "virtualmachines"),
		own("virtualmachineinstances-mutator.vmlet.io", admission.PathMutateInstance, "virtualmachineinstances"),
	}
}

func validating() []webhook {
	return []webhook{
		own("virtualmachines-validator.vmlet.io", admission.PathValidateMachine, "virtualmachines"),
		own("virtualmachineinstances-validator.vmlet.io", admission.PathValidateInstance, "virtualmachineinstances"),
		{
			name: "eviction.vmlet.io", path: admission.PathEviction,
			operations: []admissionv1.OperationType{admissionv1.Create}, version: "v1", resource: "pods/eviction",
			policy: admissionv1.Ignore, effects: admissionv1.SideEffectClassNoneOnDryRun,
			// VMs' pods, and those through which volumes are attached to them.
			condition: admissionv1.MatchCondition{Name: "launcher", Expression: "object.metadata.name.startsWith('virt-launcher-') || object.metadata.name.startsWith('hp-')"},
		},
	}
}

// own is a webhook for one of vmlet's kinds. The API server itself lets objects pass that are
// being deleted: their finalizers go also where no vmlet-api is left.
func own(name, path, resource string) webhook {
	return webhook{
		name: name, path: path, operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		group: kubevirtv1.Group, version: kubevirtv1.Version, resource: resource,
		policy: admissionv1.Fail, effects: admissionv1.SideEffectClassNone,
		condition: admissionv1.MatchCondition{Name: "not-being-deleted", Expression: "!has(object.metadata.deletionTimestamp)"},
	}
}

// server is where vmlet-api serves the webhooks, and the certificates, in PEM, that its own is
// signed by.
type server struct {
	namespace, service string
	roots              []byte
}

func (s server) client(path string) admissionv1.WebhookClientConfig {
	return admissionv1.WebhookClientConfig{
		Service:  &admissionv1.ServiceReference{Namespace: s.namespace, Name: s.service, Path: &path, Port: new(int32(443))},
		CABundle: s.roots,
	}
}

func (w webhook) rules() []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{
		Operations: w.operations,
		Rule: admissionv1.Rule{
			APIGroups: []string{w.group}, APIVersions: []string{w.version}, Resources: []string{w.resource},
			Scope: new(admissionv1.NamespacedScope),
		},
	}}
}

// timeout of a webhook, in seconds: the API server's own default.
const timeout = 10

// mutators and validators have every field that the API server would fill in, so that they can
// be compared with what it has stored. The selectors are those of the webhooks before: which
// namespaces webhooks leave alone is for the administrator to say, and some clouds do.
func mutators(s server, before []admissionv1.MutatingWebhook) (all []admissionv1.MutatingWebhook) {
	for _, w := range mutating() {
		one := admissionv1.MutatingWebhook{
			Name: w.name, ClientConfig: s.client(w.path), Rules: w.rules(), FailurePolicy: &w.policy, SideEffects: &w.effects,
			MatchPolicy: new(admissionv1.Equivalent), ReinvocationPolicy: new(admissionv1.NeverReinvocationPolicy),
			NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
			TimeoutSeconds: new(int32(timeout)), AdmissionReviewVersions: []string{"v1"},
			MatchConditions: []admissionv1.MatchCondition{w.condition},
		}
		if n := slices.IndexFunc(before, func(b admissionv1.MutatingWebhook) bool { return b.Name == w.name }); n >= 0 {
			one.NamespaceSelector, one.ObjectSelector = before[n].NamespaceSelector, before[n].ObjectSelector
		}
		all = append(all, one)
	}
	return all
}

func validators(s server, before []admissionv1.ValidatingWebhook) (all []admissionv1.ValidatingWebhook) {
	for _, w := range validating() {
		one := admissionv1.ValidatingWebhook{
			Name: w.name, ClientConfig: s.client(w.path), Rules: w.rules(), FailurePolicy: &w.policy, SideEffects: &w.effects,
			MatchPolicy:       new(admissionv1.Equivalent),
			NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
			TimeoutSeconds: new(int32(timeout)), AdmissionReviewVersions: []string{"v1"},
			MatchConditions: []admissionv1.MatchCondition{w.condition},
		}
		if n := slices.IndexFunc(before, func(b admissionv1.ValidatingWebhook) bool { return b.Name == w.name }); n >= 0 {
			one.NamespaceSelector, one.ObjectSelector = before[n].NamespaceSelector, before[n].ObjectSelector
		}
		all = append(all, one)
	}
	return all
}
