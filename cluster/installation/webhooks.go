package installation

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/cluster/admission"
	"github.com/vmlet/vmlet/cluster/webhookrules"
)

// ConfigurationName is the name of both webhook configurations.
const ConfigurationName = "vmlet"

// webhook is what mutating and validating ones have in common.
type webhook struct {
	name, path string
	rules      webhookrules.Rules
	policy     admissionv1.FailurePolicyType
	effects    admissionv1.SideEffectClass
	// conditions are CEL; only requests for which all are true are sent.
	conditions []admissionv1.MatchCondition
	// protection is the path that is called in any case, where a virtualisation stack has webhooks of
	// its own for the rules; empty: no stack can have any.
	protection string
}

// mutating and validating: nothing of vmlet's own kinds is stored that vmlet has not seen
// (Fail); nothing else depends on vmlet (Ignore).
func mutating() []webhook {
	instances := own("virtualmachineinstances-mutator.vmlet.io", admission.PathMutateInstance, "virtualmachineinstances", admission.PathProtectInstanceOrigin)
	// Of an instance that is there nothing is filled in, and its controller updates it at each start.
	instances.rules = rules(kubevirtv1.Group, kubevirtv1.Version, "virtualmachineinstances", admissionv1.Create)
	return []webhook{
		own("virtualmachines-mutator.vmlet.io", admission.PathMutateMachine, "virtualmachines", admission.PathProtectMachineIdentity),
		instances,
	}
}

func validating() []webhook {
	return []webhook{
		own("virtualmachines-validator.vmlet.io", admission.PathValidateMachine, "virtualmachines", admission.PathProtectMachine),
		own("virtualmachineinstances-validator.vmlet.io", admission.PathValidateInstance, "virtualmachineinstances", admission.PathProtectInstance),
		{
			name: "virtualmachinepools-validator.vmlet.io", path: admission.PathValidatePool,
			rules:  rules(poolv1.Group, poolv1.Version, "virtualmachinepools", admissionv1.Create, admissionv1.Update),
			policy: admissionv1.Fail, effects: admissionv1.SideEffectClassNone, conditions: []admissionv1.MatchCondition{notBeingDeleted()},
		},
		{
			name: "virtualmachineinstancereplicasets-validator.vmlet.io", path: admission.PathValidateReplicas,
			rules:  rules(kubevirtv1.Group, kubevirtv1.Version, "virtualmachineinstancereplicasets", admissionv1.Create, admissionv1.Update),
			policy: admissionv1.Fail, effects: admissionv1.SideEffectClassNone, conditions: []admissionv1.MatchCondition{notBeingDeleted()},
		},
		{
			name: "eviction.vmlet.io", path: admission.PathEviction,
			rules:  rules("", "v1", "pods/eviction", admissionv1.Create),
			policy: admissionv1.Ignore, effects: admissionv1.SideEffectClassNoneOnDryRun,
			// VMs' pods, and those through which volumes are attached to them.
			conditions: []admissionv1.MatchCondition{{Name: "launcher", Expression: "object.metadata.name.startsWith('virt-launcher-') || object.metadata.name.startsWith('hp-')"}},
		},
	}
}

// own is a webhook for one of vmlet's kinds.
func own(name, path, resource, protection string) webhook {
	return webhook{
		name: name, path: path, rules: rules(kubevirtv1.Group, kubevirtv1.Version, resource, admissionv1.Create, admissionv1.Update),
		policy: admissionv1.Fail, effects: admissionv1.SideEffectClassNone, protection: protection,
		conditions: []admissionv1.MatchCondition{notBeingDeleted()},
	}
}

// notBeingDeleted: updates pass of objects that are being deleted. Their finalizers go also where no
// vmlet-api is left. Only the API server sets the timestamp of an object that is there, but who
// creates one by server-side apply may bring it.
func notBeingDeleted() admissionv1.MatchCondition {
	return admissionv1.MatchCondition{Name: "not-being-deleted",
		Expression: "request.operation != 'UPDATE' || !has(object.metadata.deletionTimestamp)"}
}

// notConfiguration: the KubeVirt object can be changed whatever a plugin says, or the profile of one that
// does not answer could not be taken out of it.
func notConfiguration() admissionv1.MatchCondition {
	return admissionv1.MatchCondition{Name: "not-configuration", Expression: "request.resource.resource != 'kubevirts'"}
}

func rules(group, version, resource string, operations ...admissionv1.OperationType) webhookrules.Rules {
	return webhookrules.Rules{{
		Operations: operations,
		Rule: admissionv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource},
			Scope: new(admissionv1.NamespacedScope),
		},
	}}
}

// protectionPrefix is of webhooks that are called in any case.
const protectionPrefix = "protection-"

// beside returns the webhooks that are left beside those of a virtualisation stack with the taken rules:
// one that loses some of its rules is called for the others, and for all of them what protects users'
// data.
func beside(all []webhook, taken webhookrules.Rules) (left []webhook) {
	same := webhookrules.Equivalents{kubevirtv1.Group: {kubevirtv1.Version, "v1alpha3"}}
	for _, w := range all {
		rest := webhookrules.Subtract(w.rules, taken, same)
		if w.protection == "" || equality.Semantic.DeepEqual(rest, w.rules) {
			left = append(left, w)
			continue
		}
		protection := w
		protection.name, protection.path = protectionPrefix+w.name, w.protection
		left = append(left, protection)
		if w.rules = rest; len(rest) > 0 {
			left = append(left, w)
		}
	}
	return left
}

// server is where webhooks are served, and the certificates, in PEM, that its own is
// signed by.
type server struct {
	namespace, service string
	roots              []byte
	// paths makes of a webhook's path the one that the API server calls; nil: that is the same.
	paths func(string) string
}

func (s server) client(path string) admissionv1.WebhookClientConfig {
	if s.paths != nil {
		path = s.paths(path)
	}
	return admissionv1.WebhookClientConfig{
		Service:  &admissionv1.ServiceReference{Namespace: s.namespace, Name: s.service, Path: &path, Port: new(int32(443))},
		CABundle: s.roots,
	}
}

// timeout of a webhook, in seconds: the API server's own default.
const timeout = 10

// mutators and validators have every field that the API server would fill in, so that they can
// be compared with what it has stored. The selectors are those of the webhooks before: which
// namespaces webhooks leave alone is for the administrator to say, and some clouds do. A webhook that comes
// or goes with a plugin has those of its counterpart.
func mutators(s server, hooks []webhook, before []admissionv1.MutatingWebhook) (all []admissionv1.MutatingWebhook) {
	for _, w := range hooks {
		one := admissionv1.MutatingWebhook{
			Name: w.name, ClientConfig: s.client(w.path), Rules: w.rules, FailurePolicy: &w.policy, SideEffects: &w.effects,
			MatchPolicy: new(admissionv1.Equivalent), ReinvocationPolicy: new(admissionv1.NeverReinvocationPolicy),
			NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
			TimeoutSeconds: new(int32(timeout)), AdmissionReviewVersions: []string{"v1"},
			MatchConditions: w.conditions,
		}
		for _, name := range former(w.name) {
			if n := slices.IndexFunc(before, func(b admissionv1.MutatingWebhook) bool { return b.Name == name }); n >= 0 {
				one.NamespaceSelector, one.ObjectSelector = before[n].NamespaceSelector, before[n].ObjectSelector
				break
			}
		}
		all = append(all, one)
	}
	return all
}

func validators(s server, hooks []webhook, before []admissionv1.ValidatingWebhook) (all []admissionv1.ValidatingWebhook) {
	for _, w := range hooks {
		one := admissionv1.ValidatingWebhook{
			Name: w.name, ClientConfig: s.client(w.path), Rules: w.rules, FailurePolicy: &w.policy, SideEffects: &w.effects,
			MatchPolicy:       new(admissionv1.Equivalent),
			NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
			TimeoutSeconds: new(int32(timeout)), AdmissionReviewVersions: []string{"v1"},
			MatchConditions: w.conditions,
		}
		for _, name := range former(w.name) {
			if n := slices.IndexFunc(before, func(b admissionv1.ValidatingWebhook) bool { return b.Name == name }); n >= 0 {
				one.NamespaceSelector, one.ObjectSelector = before[n].NamespaceSelector, before[n].ObjectSelector
				break
			}
		}
		all = append(all, one)
	}
	return all
}

// former are the names of the webhooks that a webhook may have its selectors from.
func former(name string) []string {
	return []string{name, protectionPrefix + name, strings.TrimPrefix(name, protectionPrefix)}
}
