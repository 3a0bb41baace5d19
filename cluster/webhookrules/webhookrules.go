// Package webhookrules computes with the rules by which the API server decides which webhooks a request
// goes to. It is pure. Start reading at Subtract.
package webhookrules

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// Rules of a webhook: a request goes to it that matches one of them.
type Rules = []admissionv1.RuleWithOperations

// Equivalents are the versions of an API group that the API server converts into each other. A rule with
// one of them gets requests of all, as webhooks' matchPolicy is Equivalent unless they say otherwise.
type Equivalents map[string][]string

// Subtract returns rules for just those requests that match one of the given rules and none of the taken
// ones. The given rules name their groups, versions and resources; the taken ones may have wildcards
// anywhere. The given rules are returned as they are where nothing of them is taken.
func Subtract(given, taken Rules, same Equivalents) (left Rules) {
	for _, rule := range given {
		rest := []box{boxOf(rule)}
		touched := false
		for _, t := range taken {
			var next []box
			for _, b := range rest {
				parts, overlaps := b.without(t, same)
				next, touched = append(next, parts...), touched || overlaps
			}
			rest = next
		}
		if !touched {
			left = append(left, rule)
			continue
		}
		for _, b := range rest {
			left = append(left, b.rule())
		}
	}
	return left
}

// The dimensions of a rule. Each has a list of values.
const (
	operations = iota
	groups
	versions
	resources
	scopes
	dimensions
)

// box is a rule without wildcards: all combinations of its lists' values.
type box [dimensions][]string

func boxOf(r admissionv1.RuleWithOperations) (b box) {
	for _, o := range r.Operations {
		b[operations] = append(b[operations], string(o))
	}
	if slices.Contains(b[operations], string(admissionv1.OperationAll)) {
		b[operations] = []string{string(admissionv1.Create), string(admissionv1.Update), string(admissionv1.Delete), string(admissionv1.Connect)}
	}
	b[groups], b[versions], b[resources] = r.APIGroups, r.APIVersions, r.Resources
	b[scopes] = []string{string(admissionv1.NamespacedScope), string(admissionv1.ClusterScope)}
	if r.Scope != nil && *r.Scope != admissionv1.AllScopes {
		b[scopes] = []string{string(*r.Scope)}
	}
	return b
}

// rule is the reverse of boxOf.
func (b box) rule() (r admissionv1.RuleWithOperations) {
	for _, o := range b[operations] {
		r.Operations = append(r.Operations, admissionv1.OperationType(o))
	}
	r.APIGroups, r.APIVersions, r.Resources = b[groups], b[versions], b[resources]
	scope := admissionv1.AllScopes
	if len(b[scopes]) == 1 {
		scope = admissionv1.ScopeType(b[scopes][0])
	}
	r.Scope = &scope
	return r
}

// without returns the box in as many parts as it takes to leave out what a rule matches; overlaps says
// whether that was anything.
func (b box) without(t admissionv1.RuleWithOperations, same Equivalents) (parts []box, overlaps bool) {
	inside := b
	for d := range dimensions {
		var in, out []string
		for _, value := range b[d] {
			if matches(t, d, value, b[groups], same) {
				in = append(in, value)
			} else {
				out = append(out, value)
			}
		}
		if len(in) == 0 {
			return []box{b}, false
		}
		if len(out) > 0 {
			part := inside
			part[d] = out
			parts = append(parts, part)
		}
		inside[d] = in
	}
	return parts, true
}

// matches says whether a rule matches a value of a dimension. in are the groups of the value.
func matches(t admissionv1.RuleWithOperations, dimension int, value string, in []string, same Equivalents) bool {
	switch dimension {
	case operations:
		return slices.Contains(t.Operations, admissionv1.OperationAll) || slices.Contains(t.Operations, admissionv1.OperationType(value))
	case groups:
		return named(t.APIGroups, value)
	case versions:
		return named(t.APIVersions, value) || slices.ContainsFunc(in, func(group string) bool {
			return slices.Contains(same[group], value) && slices.ContainsFunc(t.APIVersions, func(v string) bool { return slices.Contains(same[group], v) })
		})
	case resources:
		return slices.ContainsFunc(t.Resources, func(pattern string) bool { return matchesResource(pattern, value) })
	}
	return t.Scope == nil || *t.Scope == admissionv1.AllScopes || string(*t.Scope) == value
}

func named(list []string, value string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, value)
}

// matchesResource: a pattern is a resource, or one and a subresource, and "*" stands for all of either
// (Kubernetes' pkg/admission/plugin/webhook/predicates/rules).
func matchesResource(pattern, value string) bool {
	resource, sub, _ := strings.Cut(pattern, "/")
	ownResource, ownSub, _ := strings.Cut(value, "/")
	return (resource == "*" || resource == ownResource) && (sub == "*" || sub == ownSub)
}

// Fault names a field of a rule that the API server refuses, and says why; empty: it accepts the rule
// (Kubernetes' pkg/apis/admissionregistration/validation). This is stricter in that resources which
// overlap are refused in any order, and resources that match nothing are, too.
func Fault(r admissionv1.RuleWithOperations) (field, why string) {
	var asked []string
	for _, o := range r.Operations {
		asked = append(asked, string(o))
	}
	for _, list := range []struct {
		field  string
		values []string
	}{{"operations", asked}, {"apiGroups", r.APIGroups}, {"apiVersions", r.APIVersions}, {"resources", r.Resources}} {
		switch {
		case len(list.values) == 0:
			return list.field, "want at least one"
		case list.field != "apiGroups" && slices.Contains(list.values, ""):
			return list.field, "want no empty one"
		case list.field != "resources" && len(list.values) > 1 && slices.Contains(list.values, "*"):
			return list.field, `"*" is all of them: want no other beside it`
		}
	}
	known := []string{"CREATE", "UPDATE", "DELETE", "CONNECT", "*"}
	if n := slices.IndexFunc(asked, func(o string) bool { return !slices.Contains(known, o) }); n >= 0 {
		return "operations", fmt.Sprintf("%.63q: want one of %s", asked[n], strings.Join(known, ", "))
	}
	scopes := []admissionv1.ScopeType{admissionv1.ClusterScope, admissionv1.NamespacedScope, admissionv1.AllScopes}
	if r.Scope != nil && !slices.Contains(scopes, *r.Scope) {
		return "scope", fmt.Sprintf("%.63q: want Cluster, Namespaced or *", *r.Scope)
	}
	if why := resourcesFault(r.Resources); why != "" {
		return "resources", why
	}
	return "", ""
}

// resourcesFault says why the API server refuses resources; empty: it does not.
func resourcesFault(all []string) string {
	for i, one := range all {
		if strings.Count(one, "/") > 1 {
			return fmt.Sprintf("%.63q: want RESOURCE or RESOURCE/SUBRESOURCE", one)
		}
		for j, other := range all {
			// "pods/*" beside "pods" is accepted, though it matches that, too.
			alike := other == "*/*" || strings.Contains(one, "/") == strings.Contains(other, "/")
			if i != j && alike && strings.Contains(other, "*") && matchesResource(other, one) {
				return fmt.Sprintf("%.63q is among %q", one, other)
			}
		}
	}
	return ""
}
