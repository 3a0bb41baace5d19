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

// sets are specifications of VirtualMachineInstanceReplicaSets, with what refuses them; empty: they are accepted.
var sets = map[string]string{
	`selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {domain: {devices: {}}}}`:      "",
	`selector: {matchLabels: {a: b}}, template: {spec: {domain: {devices: {}}}}, replicas: 0, paused: true`:       "",
	`selector: {matchLabels: {a: b}}, template: {spec: {domain: {devices: {}}}}, replicas: -1`:                    "spec.replicas: Invalid value",
	`template: {spec: {domain: {devices: {}}}}`:                                                                   "spec.selector: Required value",
	`selector: {matchLabels: {a: b}}`:                                                                             "spec.template: Required value",
	`selector: {matchLabels: {a: b}}, template: {spec: {domain: {devices: {}}, volumes: [{name: a}, {name: a}]}}`: "Duplicate value",
	`selector: {matchLabels: {a: b}}, template: {spec: {domain: {devices: {}}}}, minReadySeconds: 3`:              `unknown field "spec.minReadySeconds"`,
}

// testReplicaSets: sets of instances are checked, and scaled as ReplicaSets are.
func (s *server) testReplicaSets(t *testing.T) {
	url := s.url + "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets?fieldValidation=Strict"
	body := func(spec string) []byte {
		return []byte("{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstanceReplicaSet, metadata: {name: a}, spec: {" + spec + "}}")
	}
	for spec, want := range sets {
		code, answer := s.request(t, http.MethodPost, url+"&dryRun=All", "application/yaml", body(spec))
		if (code == http.StatusCreated) != (want == "") || !strings.Contains(strings.ReplaceAll(string(answer), `\"`, `"`), want) {
			t.Errorf("%s: %d %s, want %q", spec, code, answer, want)
		}
	}
	if code, answer := s.request(t, http.MethodPost, url, "application/yaml", body(`selector: {matchLabels: {a: b}}, template: {spec: {domain: {devices: {}}}}`)); code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
	s.kubectl(t, "scale", "vmirs/a", "--replicas=3")
	if got := s.kubectl(t, "get", "vmirs", "a", "-o", "jsonpath={.apiVersion} {.spec.replicas}"); got != "kubevirt.io/v1 3" {
		t.Errorf("kept as %q, want kubevirt.io/v1 3", got)
	}
	header, _, _ := strings.Cut(s.kubectl(t, "get", "vmirs"), "\n")
	if got := strings.Join(strings.Fields(header), " "); got != "NAME DESIRED CURRENT READY AGE" {
		t.Errorf("kubectl get vmirs prints %q", got)
	}
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
