package webhookrules

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, text string) (r Rules) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

const machines = "{operations: [CREATE, UPDATE], apiGroups: [kubevirt.io], apiVersions: [v1], resources: [virtualmachines], scope: Namespaced}"

func TestSubtract(t *testing.T) {
	same := Equivalents{"kubevirt.io": {"v1", "v1alpha3"}}
	for name, c := range map[string]struct{ given, taken, want string }{
		"nothing":           {machines, "", machines},
		"another resource":  {machines, "{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: [virtualmachineinstances, '*/status']}", machines},
		"all":               {machines, "{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}", ""},
		"all and sub":       {machines, "{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}", ""},
		"itself":            {machines, machines, ""},
		"an operation":      {machines, "{operations: [CREATE], apiGroups: [kubevirt.io], apiVersions: [v1], resources: [virtualmachines]}", strings.Replace(machines, "CREATE, UPDATE", "UPDATE", 1)},
		"an equivalent":     {machines, "{operations: [CREATE], apiGroups: [kubevirt.io], apiVersions: [v1alpha3], resources: [virtualmachines]}", strings.Replace(machines, "CREATE, UPDATE", "UPDATE", 1)},
		"an older version":  {machines, "{operations: [CREATE], apiGroups: [kubevirt.io], apiVersions: [v1alpha2], resources: [virtualmachines]}", machines},
		"of cluster scope":  {machines, "{operations: [CREATE], apiGroups: [kubevirt.io], apiVersions: [v1], resources: [virtualmachines], scope: Cluster}", machines},
		"a subresource":     {strings.Replace(machines, "virtualmachines", "virtualmachines/status", 1), "{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/status']}", ""},
		"of two resources":  {strings.Replace(machines, "virtualmachines", "virtualmachines, others", 1), "{operations: [UPDATE], apiGroups: ['*'], apiVersions: ['*'], resources: ['others']}", strings.Replace(strings.Replace(machines, "CREATE, UPDATE", "CREATE", 1), "virtualmachines", "virtualmachines, others", 1) + ", " + strings.Replace(machines, "CREATE, UPDATE", "UPDATE", 1)},
		"bit by bit":        {machines, "{operations: [CREATE], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}, {operations: [UPDATE], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}", ""},
		"given a wildcard":  {strings.Replace(machines, "CREATE, UPDATE", "'*'", 1), "{operations: [CREATE], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}", strings.Replace(machines, "CREATE, UPDATE", "UPDATE, DELETE, CONNECT", 1)},
		"given both scopes": {strings.Replace(machines, "scope: Namespaced", "scope: '*'", 1), machines, strings.Replace(machines, "scope: Namespaced", "scope: Cluster", 1)},
	} {
		got := Subtract(parse(t, "["+c.given+"]"), parse(t, "["+c.taken+"]"), same)
		if want := parse(t, "["+c.want+"]"); len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// TestFault: what the API server's validation says of these rules.
func TestFault(t *testing.T) {
	with := func(key, value string) string {
		rule := map[string]string{"operations": "[CREATE]", "apiGroups": "[a]", "apiVersions": "[v1]", "resources": "[as]", "scope": "'*'", key: value}
		text := "{"
		for key, value := range rule {
			text += key + ": " + value + ", "
		}
		return "[" + text + "}]"
	}
	for key, values := range map[string]struct{ good, bad []string }{
		"operations":  {[]string{"['*']", "[CREATE, CONNECT]"}, []string{"[]", "[create]", "['*', CREATE]", "['']"}},
		"apiGroups":   {[]string{"['*']", "['']", "[a, b]"}, []string{"[]", "['*', a]"}},
		"apiVersions": {[]string{"['*']"}, []string{"[]", "['*', v1]", "['']"}},
		"scope":       {[]string{"Cluster", "Namespaced", "null"}, []string{"namespaced", "''"}},
		"resources": {
			[]string{"['*']", "['*/*']", "['*', as/status]", "[as, as/*]", "[as/*, bs, bs/status]", "['*/status', as/scale]", "[as/*, '*/status']"},
			[]string{"[]", "['']", "[as/status/more]", "['*', as]", "[as, '*']", "['*/*', as]", "['*/*', '*']", "[as/*, as/status]", "[as/status, '*/status']"},
		},
	} {
		for _, value := range values.good {
			if field, why := Fault(parse(t, with(key, value))[0]); field != "" {
				t.Errorf("%s: %s: refused for %s: %s", key, value, field, why)
			}
		}
		for _, value := range values.bad {
			if field, why := Fault(parse(t, with(key, value))[0]); field != key || why == "" {
				t.Errorf("%s: %s: refused for %q: %q, want for %s", key, value, field, why, key)
			}
		}
	}
}

// TestAsTheAPIServerMatches: of any request, what is left matches it if and only if the given rules do
// and the taken ones do not, by the API server's own matching.
func TestAsTheAPIServerMatches(t *testing.T) {
	for seed := range uint64(3000) {
		property(t, rand.New(rand.NewPCG(seed, 1)))
	}
}

func FuzzAsTheAPIServerMatches(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) { property(t, rand.New(rand.NewPCG(a, b))) })
}

func property(t *testing.T, r *rand.Rand) {
	t.Helper()
	given, taken := some(r, ruleOf(r, false)), some(r, ruleOf(r, true))
	left := Subtract(given, taken, nil)
	for range 20 {
		a := request(r)
		if want := matching(given, a) && !matching(taken, a); matching(left, a) != want {
			t.Fatalf("given %+v, taken %+v: of %s %s/%s in %q what is left, %+v, matches: %v", given, taken,
				a.GetOperation(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), left, !want)
		}
	}
}

func some(r *rand.Rand, one func() admissionv1.RuleWithOperations) (all Rules) {
	for range 1 + r.IntN(3) {
		all = append(all, one())
	}
	return all
}

// ruleOf makes rules; without wildcards they have none where a rule that is left could not say all but one.
func ruleOf(r *rand.Rand, wildcards bool) func() admissionv1.RuleWithOperations {
	pick := func(wildcard []string, names ...string) []string {
		if wildcards && r.IntN(3) == 0 {
			return []string{wildcard[r.IntN(len(wildcard))]}
		}
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		return slices.Clone(names[:1+r.IntN(len(names))])
	}
	return func() (rule admissionv1.RuleWithOperations) {
		for _, o := range pick([]string{"*"}, "CREATE", "UPDATE", "DELETE", "CONNECT") {
			rule.Operations = append(rule.Operations, admissionv1.OperationType(o))
		}
		if r.IntN(8) == 0 {
			rule.Operations = []admissionv1.OperationType{"*"}
		}
		rule.APIGroups = pick([]string{"*"}, "", "a", "b")
		rule.APIVersions = pick([]string{"*"}, "v1", "v2")
		rule.Resources = pick([]string{"*", "*/*", "*/status", "as/*"}, "as", "bs", "as/status", "bs/scale")
		if s := r.IntN(4); s > 0 {
			scope := []admissionv1.ScopeType{admissionv1.AllScopes, admissionv1.NamespacedScope, admissionv1.ClusterScope}[s-1]
			rule.Scope = &scope
		}
		return rule
	}
}

func request(r *rand.Rand) admission.Attributes {
	of := func(values ...string) string { return values[r.IntN(len(values))] }
	version := schema.GroupVersion{Group: of("", "a", "b", "c"), Version: of("v1", "v2", "v3")}
	return admission.NewAttributesRecord(nil, nil, version.WithKind("Any"), of("", "space"), "name", version.WithResource(of("as", "bs", "cs")),
		of("", "status", "scale"), admission.Operation(of("CREATE", "UPDATE", "DELETE", "CONNECT")), nil, false, nil)
}

func matching(all Rules, a admission.Attributes) bool {
	return slices.ContainsFunc(all, func(rule admissionv1.RuleWithOperations) bool {
		m := rules.Matcher{Rule: rule, Attr: a}
		return m.Matches()
	})
}
