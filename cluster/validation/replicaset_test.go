package validation

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// TestReplicaSet: each fault of a set of instances is found by its path in the set, and an update that changes nothing
// is let in.
func TestReplicaSet(t *testing.T) {
	for spec, want := range map[string]string{
		"{}":                                    "",
		"template: null":                        "spec.template: Required",
		"selector: null":                        "spec.selector: Required",
		"selector: {matchLabels: null}":         "spec.selector: Required",
		"selector: {matchLabels: {app: other}}": "spec.selector: ",
		"selector: {matchExpressions: [{key: app, operator: Like}]}": "spec.selector.matchExpressions[0].operator: ",
		"template: {metadata: {labels: {'not a key': a, app: web}}}": "spec.template.metadata.labels: ",
		"template: {spec: {hostname: 'not a name'}}":                 "spec.template.spec.hostname: ",
	} {
		set := &kubevirtv1.VirtualMachineInstanceReplicaSet{}
		set.Namespace, set.Name = "space", "web"
		for _, text := range []string{"{selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {domain: {memory: {guest: 1Gi}, devices: {}}}}}", spec} {
			if err := yaml.UnmarshalStrict([]byte(text), &set.Spec); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
		faults, _ := ReplicaSet(set, nil, request())
		if (len(faults) == 0) != (want == "") || want != "" && !strings.Contains(faults.ToAggregate().Error(), want) {
			t.Errorf("%s: %v, want %q", spec, faults, want)
		}
		scaled := set.DeepCopy()
		scaled.Spec.Replicas = new(int32(7))
		if again, _ := ReplicaSet(scaled, set, request()); len(again) != 0 {
			t.Errorf("%s: it can't be scaled: %v", spec, again)
		}
	}
}
