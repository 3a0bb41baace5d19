package installation

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/webhookrules"
)

// PluginName is what a virtualisation stack's webhooks are served by: a Deployment, its Service and the
// Secret with its certificate. The Service's name is that of the proposal for pluggable stacks.
const PluginName = "plugin-admission-webhooks"

// PluginConfigurationName is the name of both webhook configurations that a stack's webhooks are in. It
// comes after ConfigurationName, so that its mutating webhooks see what vmlet's have filled in.
const PluginConfigurationName = ConfigurationName + "-plugin"

// plugin is what a virtualisation stack's webhooks take the place of.
type plugin struct{ mutating, validating webhookrules.Rules }

// servePlugin runs a stack's webhooks, and registers them once their server has been up: until then, and
// without any, vmlet's own are called for all requests. What it returns is what they are called for,
// also with an error.
func (i *Installation) servePlugin(ctx context.Context, owner *corev1.Namespace, c configuration.Configuration) (plugin, error) {
	hooks := c.Stack.Webhooks
	if hooks == nil {
		return plugin{}, nil
	}
	was, err := i.registered(ctx)
	if err != nil {
		return plugin{}, err
	}
	if up, err := i.runPlugin(ctx, c, was); err != nil || !up {
		return was, err
	}
	all := plugin{mutating: rulesOf(ofPlugin(hooks.MutatingWebhooks)), validating: rulesOf(ofPlugin(hooks.ValidatingWebhooks))}
	both := plugin{mutating: inBoth(was.mutating, all.mutating), validating: inBoth(was.validating, all.validating)}
	// vmlet's own are called for what the plugin's lose before these lose it.
	err = i.applyWebhooks(ctx, owner, both)
	if err == nil {
		err = i.registerPlugin(ctx, owner, hooks)
	}
	if err != nil {
		return both, err
	}
	return all, nil
}

func rulesOf(all []webhook) (rules webhookrules.Rules) {
	for _, w := range all {
		rules = append(rules, w.rules...)
	}
	return rules
}

// inBoth returns the rules of one list that are in the other.
func inBoth(one, other webhookrules.Rules) webhookrules.Rules {
	return slices.DeleteFunc(slices.Clone(one), func(r admissionv1.RuleWithOperations) bool {
		return !slices.ContainsFunc(other, func(o admissionv1.RuleWithOperations) bool { return equality.Semantic.DeepEqual(o, r) })
	})
}

// registered is what a stack's webhooks are called for now.
func (i *Installation) registered(ctx context.Context) (now plugin, err error) {
	first, second := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	for _, o := range []client.Object{first, second} {
		if err := i.Live.Get(ctx, client.ObjectKey{Name: PluginConfigurationName}, o); client.IgnoreNotFound(err) != nil {
			return plugin{}, err
		}
	}
	for _, w := range first.Webhooks {
		now.mutating = append(now.mutating, w.Rules...)
	}
	for _, w := range second.Webhooks {
		now.validating = append(now.validating, w.Rules...)
	}
	return now, nil
}

// runPlugin runs the server of a stack's webhooks. up: it is called already, or could be.
func (i *Installation) runPlugin(ctx context.Context, c configuration.Configuration, was plugin) (up bool, err error) {
	certificate, err := i.pluginCertificate(ctx)
	if err != nil {
		return false, err
	}
	for _, o := range []client.Object{i.pluginService(), i.pluginDeployment(c, certificate)} {
		if err := i.applyOwn(ctx, o); err != nil {
			return false, err
		}
	}
	if len(was.mutating)+len(was.validating) > 0 {
		return true, nil
	}
	var d appsv1.Deployment
	err = i.Client.Get(ctx, client.ObjectKey{Namespace: i.Namespace, Name: PluginName}, &d)
	if err == nil && d.Status.AvailableReplicas == 0 {
		i.Log.Warn("plugin's webhooks are not called yet: no pod of theirs is available", "deployment", PluginName)
	}
	return d.Status.AvailableReplicas > 0, client.IgnoreNotFound(err)
}

// registerPlugin makes the webhook configurations of a stack.
func (i *Installation) registerPlugin(ctx context.Context, owner *corev1.Namespace, p *kubevirtv1.PluginWebhooks) error {
	roots, err := i.Roots(ctx)
	if err != nil {
		return err
	}
	at := server{namespace: i.Namespace, service: PluginName, roots: roots}
	first, second := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	first.Name, second.Name = PluginConfigurationName, PluginConfigurationName
	return errors.Join(
		i.put(ctx, owner, first, func() { first.Webhooks = mutators(at, ofPlugin(p.MutatingWebhooks), first.Webhooks) }),
		i.put(ctx, owner, second, func() { second.Webhooks = validators(at, ofPlugin(p.ValidatingWebhooks), second.Webhooks) }),
	)
}

// ofPlugin are a stack's webhooks, which vmlet's own give way to.
func ofPlugin(specified []kubevirtv1.PluginWebhookSpecification) (all []webhook) {
	for _, w := range specified {
		one := webhook{
			name: w.Name + ".plugin.vmlet.io", path: w.RestServicePath, rules: completed(w.Rules),
			policy: admissionv1.Fail, effects: admissionv1.SideEffectClassNone,
			conditions: []admissionv1.MatchCondition{notBeingDeleted(), notConfiguration()},
		}
		if w.FailurePolicy != nil {
			one.policy = *w.FailurePolicy
		}
		all = append(all, one)
	}
	return all
}

// completed rules have what the API server would fill in.
func completed(rules webhookrules.Rules) (all webhookrules.Rules) {
	for i := range rules {
		rule := *rules[i].DeepCopy()
		if rule.Scope == nil {
			rule.Scope = new(admissionv1.AllScopes)
		}
		all = append(all, rule)
	}
	return all
}

// removePlugin sees to it that no request waits for a server that goes.
func (i *Installation) removePlugin(ctx context.Context) error {
	here := metav1.ObjectMeta{Namespace: i.Namespace, Name: PluginName}
	for _, o := range []client.Object{
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: PluginConfigurationName}},
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: PluginConfigurationName}},
		&appsv1.Deployment{ObjectMeta: here}, &corev1.Service{ObjectMeta: here}, &corev1.Secret{ObjectMeta: here},
	} {
		switch err := i.Live.Get(ctx, client.ObjectKeyFromObject(o), o); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return err
		}
		if err := client.IgnoreNotFound(i.Client.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
			return err
		}
		i.Log.Info("part of a plugin's webhooks deleted", "name", o.GetName())
	}
	return nil
}

// pluginCertificate sees to it that the plugin's Secret has a certificate that is not about to end, and
// returns a mark of it, with which the plugin's pods are replaced when it is another.
func (i *Installation) pluginCertificate(ctx context.Context) (string, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: PluginName}}
	err := i.Live.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	if client.IgnoreNotFound(err) != nil {
		return "", err
	}
	there := err == nil
	if !fresh(secret.Data[corev1.TLSCertKey], time.Now()) {
		certificate, key, err := i.Serve(ctx, fmt.Sprintf("%s.%s.svc", PluginName, i.Namespace))
		if err != nil {
			return "", err
		}
		secret.Labels, secret.Type = map[string]string{partOf: vmlet}, corev1.SecretTypeTLS
		secret.Data = map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}
		if err := i.write(ctx, secret, there); err != nil {
			return "", err
		}
	}
	sum := sha256.Sum256(secret.Data[corev1.TLSCertKey])
	return hex.EncodeToString(sum[:8]), nil
}

// fresh: less than two thirds of a certificate's life have passed.
func fresh(text []byte, now time.Time) bool {
	block, _ := pem.Decode(text)
	if block == nil {
		return false
	}
	c, err := x509.ParseCertificate(block.Bytes)
	return err == nil && now.Before(c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore)*2/3))
}

// applyOwn has the API server make an object what it should be; fields that others own stay.
func (i *Installation) applyOwn(ctx context.Context, o client.Object) error {
	//lint:ignore SA1019 typed objects (there are two) have no apply configuration here
	err := i.Client.Patch(ctx, o, client.Apply, client.ForceOwnership, client.FieldOwner(i.Names.Controller))
	if err != nil {
		return fmt.Errorf("writing %s: %w", o.GetName(), err)
	}
	return nil
}
