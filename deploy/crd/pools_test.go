package crd

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// member is a template of pools.
const member = `virtualMachineTemplate: {metadata: {labels: {a: b}}, spec: {runStrategy: Halted, template: {spec: {domain: {devices: {}}}}}}`

// pools are specifications beside a template, with what refuses them; empty: they are accepted.
var pools = map[string]string{
	``:                              "",
	`, replicas: 0, paused: true`:   "",
	`, replicas: -1`:                "spec.replicas: Invalid value",
	`, replica: 1`:                  `unknown field "spec.replica"`,
	`, maxUnavailable: 10%`:         "",
	`, selector: {matchLabels: {}}`: "",
	`, autohealing: {}`:             "",
	`, autohealing: {startUpFailureThreshold: 0}`:                                                                                        "greater than or equal to 1",
	`, autohealing: {startUpFailureThreshold: 2, startupFailureThreshold: 2}`:                                                            "are the same: set one",
	`, nameGeneration: {appendIndexToSecretRefs: true, appendPostfixToConfigMapReferences: true}`:                                        "",
	`, nameGeneration: {appendIndexToSecretRefs: true, appendPostfixToSecretReferences: true}`:                                           "are the same: set one",
	`, scaleInStrategy: {opportunistic: {statePreservation: Online}}`:                                                                    "",
	`, scaleInStrategy: {unmanaged: {}, proactive: {}}`:                                                                                  "at most one of unmanaged",
	`, updateStrategy: {unmanaged: {}, opportunistic: {}}`:                                                                               "at most one of unmanaged",
	`, scaleInStrategy: {proactive: {statePreservation: Some}}`:                                                                          "Unsupported value",
	`, scaleInStrategy: {proactive: {selectionPolicy: {basePolicy: Oldest, orderedPolicies: [{labelSelector: {matchLabels: {a: b}}}]}}}`: "",
	`, updateStrategy: {proactive: {selectionPolicy: {basePolicy: Oldest, sortPolicy: Newest}}}`:                                         "are the same: set one",
	`, updateStrategy: {proactive: {selectionPolicy: {orderedPolicies: [{}]}}}`:                                                          "exactly one of labelSelector",
	`, disruptionBudget: None`:                  "",
	`, disruptionBudget: Some`:                  "Unsupported value",
	`, standby: {replicas: 2}`:                  "",
	`, standby: {replicas: 2, state: Halted}`:   "",
	`, standby: {state: Halted}`:                "Required value",
	`, standby: {replicas: -1}`:                 "greater than or equal to 0",
	`, standby: {replicas: 1, state: Sleeping}`: "Unsupported value",
	`, preservation: {onPoolDeletion: Keep}`:    "Unsupported value",
}

// testPools: pools are checked alike in both versions, kept as v1beta1, and scaled as Deployments are.
func (s *server) testPools(t *testing.T) {
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		url := fmt.Sprintf("%s/apis/pool.kubevirt.io/%s/namespaces/default/virtualmachinepools?fieldValidation=Strict", s.url, version)
		for spec, want := range pools {
			body := fmt.Sprintf("{apiVersion: pool.kubevirt.io/%s, kind: VirtualMachinePool, metadata: {name: a}, spec: {%s%s}}", version, member, spec)
			code, answer := s.request(t, http.MethodPost, url+"&dryRun=All", "application/yaml", []byte(body))
			if (code == http.StatusCreated) != (want == "") || !strings.Contains(strings.ReplaceAll(string(answer), `\"`, `"`), want) {
				t.Errorf("%s %s: %d %s, want %q", version, spec, code, answer, want)
			}
		}
	}
	body := "{apiVersion: pool.kubevirt.io/v1alpha1, kind: VirtualMachinePool, metadata: {name: a}, spec: {" + member + "}}"
	url := s.url + "/apis/pool.kubevirt.io/v1alpha1/namespaces/default/virtualmachinepools"
	if code, answer := s.request(t, http.MethodPost, url, "application/yaml", []byte(body)); code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
	s.kubectl(t, "scale", "vmpool/a", "--replicas=3")
	if got := s.kubectl(t, "get", "vmpools", "a", "-o", "jsonpath={.apiVersion} {.spec.replicas}"); got != "pool.kubevirt.io/v1beta1 3" {
		t.Errorf("kept as %q, want pool.kubevirt.io/v1beta1 3", got)
	}
	header, _, _ := strings.Cut(s.kubectl(t, "get", "vmpool"), "\n")
	if got := strings.Join(strings.Fields(header), " "); got != "NAME DESIRED CURRENT READY UPDATED PRESERVED STANDBY AGE" {
		t.Errorf("kubectl get vmpool prints %q", got)
	}
}
