package validation

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
)

func poolOf(t *testing.T, name, spec string) *poolv1.VirtualMachinePool {
	t.Helper()
	p := &poolv1.VirtualMachinePool{}
	p.Name = name
	for _, text := range []string{"virtualMachineTemplate: {metadata: {labels: {app: web}}, spec: {runStrategy: Always, template: {spec: {domain: {devices: {}}}}}}", spec} {
		if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return p
}

// TestPool: each fault of a pool is found by its path.
func TestPool(t *testing.T) {
	for spec, want := range map[string]string{
		"{}":                                    "",
		"selector: {matchLabels: {app: web}}":   "",
		"selector: {matchLabels: {app: other}}": "spec.selector: ",
		"selector: {matchExpressions: [{key: app, operator: Like}]}":     "spec.selector.matchExpressions[0].operator: ",
		"virtualMachineTemplate: {metadata: {labels: {'not a key': a}}}": "spec.virtualMachineTemplate.metadata.labels: ",
		"virtualMachineTemplate: null":                                   "spec.virtualMachineTemplate: Required",
		"maxUnavailable: 3":                                              "",
		"maxUnavailable: 100%":                                           "",
		"maxUnavailable: 0":                                              "spec.maxUnavailable: ",
		"maxUnavailable: 0%":                                             "spec.maxUnavailable: ",
		"maxUnavailable: 101%":                                           "spec.maxUnavailable: ",
		"maxUnavailable: many":                                           "spec.maxUnavailable: ",
		"autohealing: {minFailingToStartDuration: 0s}":                   "spec.autohealing.minFailingToStartDuration: ",
		"standby: {replicas: 2, state: Halted}":                          "",
		"standby: {replicas: 2, state: Running}":                         "",
		"{standby: {replicas: 2, state: Running}, virtualMachineTemplate: {metadata: {labels: {app: web}}, spec: {runStrategy: Always, template: {spec: {domain: {devices: {}}, livenessProbe: {tcpSocket: {port: 80}}}}}}}": "spec.standby.state: ",
		"{standby: {replicas: 2, state: Running}, virtualMachineTemplate: {metadata: {labels: {app: web}}, spec: {runStrategy: Always, template: {spec: {domain: {devices: {}}, livenessProbe: {guestAgentPing: {}}}}}}}":    "",
		"{standby: {replicas: 2}, virtualMachineTemplate: {metadata: {labels: {app: web}}, spec: {runStrategy: Halted}}}":                                                                                                    "spec.standby: ",
		"{standby: {replicas: 0}, virtualMachineTemplate: {metadata: {labels: {app: web}}, spec: {runStrategy: Halted}}}":                                                                                                    "",
		"preservation: {ttl: -1h}": "spec.preservation.ttl: ",
		"scaleInStrategy: {proactive: {selectionPolicy: {orderedPolicies: [{labelSelector: {matchLabels: {'?': a}}}]}}}":                          "spec.scaleInStrategy.proactive.selectionPolicy.orderedPolicies[0].labelSelector.matchLabels",
		"updateStrategy: {proactive: {selectionPolicy: {selectors: {nodeSelectorRequirementMatcher: [{key: zone, operator: In}]}}}}":              "spec.updateStrategy.proactive.selectionPolicy.selectors.nodeSelectorRequirementMatcher[0].values: ",
		"updateStrategy: {proactive: {selectionPolicy: {selectors: {nodeSelectorRequirementMatcher: [{key: zone, operator: Gt, values: [a]}]}}}}": "nodeSelectorRequirementMatcher[0].values: ",
		"updateStrategy: {proactive: {selectionPolicy: {selectors: {nodeSelectorRequirementMatcher: [{key: zone, operator: Is}]}}}}":              "nodeSelectorRequirementMatcher[0].operator: ",
		"updateStrategy: {proactive: {selectionPolicy: {selectors: {nodeSelectorRequirementMatcher: [{key: zone, operator: Exists}]}}}}":          "",
	} {
		p := poolOf(t, "web", spec)
		faults := Pool(p, nil)
		if (len(faults) == 0) != (want == "") || want != "" && !strings.Contains(faults.ToAggregate().Error(), want) {
			t.Errorf("%s: %v, want %q", spec, faults, want)
		}
		if again := Pool(p, p); len(again) != 0 {
			t.Errorf("%s: an update that changes nothing is refused: %v", spec, again)
		}
	}
	old, now := poolOf(t, "web", "selector: {matchLabels: {app: web}}"), poolOf(t, "web", "selector: {matchExpressions: [{key: app, operator: Exists}]}")
	if faults := Pool(now, old); len(faults) != 1 || faults[0].Field != "spec.selector" {
		t.Errorf("another selector: %v", faults)
	}
	if faults := Pool(poolOf(t, strings.Repeat("n", maxPoolName+1), "{}"), nil); len(faults) != 1 || faults[0].Field != "metadata.name" {
		t.Errorf("a name that is too long: %v", faults)
	}
}

// TestPoolTemplate: what is wrong with the VM of the template, and what of it is ignored, is where the pool has it.
func TestPoolTemplate(t *testing.T) {
	p := poolOf(t, "web", "virtualMachineTemplate: {metadata: {labels: {app: web}}, spec: {running: true, template: {spec: {hostname: 'not a name', domain: {memory: {guest: 1Gi}, devices: {}, features: {apic: {endOfInterrupt: true}}}}}}}")
	r := request()
	r.Root = PoolTemplate()
	faults, warnings := Machine(TemplateMachine(p), nil, r)
	const at = "spec.virtualMachineTemplate.spec."
	if len(faults) != 1 || faults[0].Field != at+"template.spec.hostname" {
		t.Errorf("faults %v", faults)
	}
	for i, want := range []string{at + "template.spec.domain.features.apic.endOfInterrupt is ignored: ", at + "running is deprecated: use " + at + "runStrategy"} {
		if len(warnings) != 2 || !strings.HasPrefix(warnings[i], want) {
			t.Errorf("warnings %q, want the one of %d to begin with %q", warnings, i, want)
		}
	}
}
