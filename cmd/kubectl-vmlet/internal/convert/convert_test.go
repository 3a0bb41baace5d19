package convert

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
)

const designed = `# a comment
apiVersion: kubevirt.io/v1
kind: VirtualMachinePool
metadata:
  name: pool
spec:
  replica: 100
  maxUnavailable: 10
  nameGeneration: {appendPostfixToSecretReferences: true}
  autohealing: {startupFailureThreshold: 5}
  scaleInStrategy:
    proactive:
      selectionPolicy:
        orderedPolicies:
          - labelSelector
            - unimportant
          - labelSelector: [idle, old]
          - labelSelector: {matchLabels: {tier: low}}
        basePolicy: Oldest
      statePreservation: Offline
  updateStrategy:
    unmanaged: {}
  template:
    spec:
      running: false
      template:
        spec:
          domain: {devices: {}}
`

func converted(t *testing.T, text string) string {
	t.Helper()
	var to strings.Builder
	if err := Manifests(strings.NewReader(text), &to); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return to.String()
}

// TestManifests: a pool of the design becomes one that has no field that the API does not know, and nothing is lost.
func TestManifests(t *testing.T) {
	var pool poolv1.VirtualMachinePool
	if err := yaml.UnmarshalStrict([]byte(converted(t, designed)), &pool); err != nil {
		t.Fatal(err)
	}
	if pool.APIVersion != "pool.kubevirt.io/v1beta1" || *pool.Spec.Replicas != 100 || pool.Spec.VirtualMachineTemplate == nil || pool.Spec.VirtualMachineTemplate.Spec.Template == nil {
		t.Errorf("converted to %+v", pool)
	}
	var keys []string
	for _, p := range pool.Spec.ScaleInStrategy.Proactive.SelectionPolicy.OrderedPolicies {
		for _, e := range p.LabelSelector.MatchExpressions {
			keys = append(keys, e.Key)
		}
		for key := range p.LabelSelector.MatchLabels {
			keys = append(keys, key)
		}
	}
	if got := strings.Join(keys, " "); got != "unimportant idle old tier" {
		t.Errorf("its policies have the labels %q", got)
	}
	again := converted(t, designed)
	if converted(t, again) != again {
		t.Error("what is converted is changed again")
	}
}

// TestOthers: what is no such pool is written as it is.
func TestOthers(t *testing.T) {
	for _, text := range []string{
		"# a comment\nkind: ConfigMap\n",
		"kind: ConfigMap\n---\n# another\nkind: Secret\n",
		"apiVersion: pool.kubevirt.io/v1beta1\nkind: VirtualMachinePool\nspec: {replicas: 1}\n",
	} {
		if got := converted(t, text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	if got := converted(t, "---\n---\nkind: ConfigMap\n"); got != "kind: ConfigMap\n" {
		t.Errorf("empty documents become %q", got)
	}
}

func TestFaults(t *testing.T) {
	pool := "apiVersion: kubevirt.io/v1\nkind: VirtualMachinePool\n"
	for text, want := range map[string]string{
		pool: "document 1: spec: ",
		"kind: ConfigMap\n---\n" + pool + "spec: {template: {}, virtualMachineTemplate: {}}":        "document 2: spec.template: ",
		pool + "spec: {scaleInStrategy: {proactive: {selectionPolicy: {orderedPolicies: [node]}}}}": "spec.scaleInStrategy.proactive.selectionPolicy.orderedPolicies[0]: ",
		"a: b: c": "document 1: ",
	} {
		err := Manifests(strings.NewReader(text), new(strings.Builder))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzManifests(f *testing.F) {
	f.Add(designed)
	f.Fuzz(func(t *testing.T, text string) {
		var to strings.Builder
		if Manifests(strings.NewReader(text), &to) == nil {
			_ = Manifests(strings.NewReader(to.String()), new(strings.Builder))
		}
	})
}
