package crd

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// sizes and preferences are specifications of instancetypes and preferences, with what refuses
// them; empty: they are accepted.
var sizes, preferences = map[string]string{
	`{cpu: {guest: 1}, memory: {guest: 1Gi}}`:                                      "",
	`{cpu: {guest: 1}, memory: {guest: 1Gi, overcommitPercent: 50}}`:               "",
	`{cpu: {guest: 1}, memory: {guest: 1Gi, overcommitPercent: 0, hugepages: {}}}`: "",
	`{cpu: {guest: 1}}`:                        "spec.memory: Required",
	`{memory: {guest: 1Gi}}`:                   "spec.cpu: Required",
	`{cpu: {}, memory: {}}`:                    "spec.cpu.guest: Required",
	`{cpu: {guest: -1}, memory: {guest: 1Gi}}`: "greater than or equal to 0",
	`{cpu: {guest: 1}, memory: {guest: 1Gi, overcommitPercent: 101}}`:                         "less than or equal to 100",
	`{cpu: {guest: 1}, memory: {guest: 1Gi, overcommitPercent: 5, hugepages: {}}}`:            "can't be set together",
	`{cpu: {guest: 1}, memory: {guest: 1Gi}, launchSecurity: {sev: {}, tdx: {}}}`:             "at most one of sev",
	`{cpu: {guest: 1, dedicatedCpuPlacement: true}, memory: {guest: 1Gi}}`:                    `unknown field "spec.cpu.dedicatedCpuPlacement"`,
	`{cpu: {guest: 1, dedicatedCPUPlacement: true, maxSockets: 4}, memory: {guest: 1000000}}`: "",
}, map[string]string{
	`{}`: "",
	`{cpu: {preferredCPUTopology: preferSpread, spreadOptions: {across: SocketsCoresThreads, ratio: 4}}}`: "",
	`{cpu: {preferredCPUTopology: spread, spreadOptions: {across: CoresThreads, ratio: 2}}}`:              "",
	`{cpu: {preferredCPUTopology: spread, spreadOptions: {across: CoresThreads, ratio: 3}}}`:              "ratio has to be 2",
	`{cpu: {preferredCPUTopology: dies}}`:                                                                 "Unsupported value",
	`{cpu: {spreadOptions: {ratio: 0}}}`:                                                                  "greater than or equal to 1",
	`{clock: {preferredClockOffset: {utc: {}, timezone: UTC}}}`:                                           "at most one of utc",
	`{requirements: {cpu: {}}}`:                                                                           "spec.requirements.cpu.guest: Required",
	`{devices: {preferredDiskBus: ide}}`:                                                                  "Unsupported value",
}

// testTypes: instancetypes and preferences are checked alike in both versions and scopes, are kept
// as v1, and go by KubeVirt's short names.
func (s *server) testTypes(t *testing.T) {
	for kind, specs := range map[string]map[string]string{
		"VirtualMachineInstancetype": sizes, "VirtualMachineClusterInstancetype": sizes,
		"VirtualMachinePreference": preferences, "VirtualMachineClusterPreference": preferences,
	} {
		scope := "namespaces/default/"
		if strings.Contains(kind, "Cluster") {
			scope = ""
		}
		for _, version := range []string{"v1", "v1beta1"} {
			url := fmt.Sprintf("%s/apis/instancetype.kubevirt.io/%s/%s%ss?fieldValidation=Strict", s.url, version, scope, strings.ToLower(kind))
			for spec, want := range specs {
				body := fmt.Sprintf("{apiVersion: instancetype.kubevirt.io/%s, kind: %s, metadata: {name: a}, spec: %s}", version, kind, spec)
				code, answer := s.request(t, http.MethodPost, url+"&dryRun=All", "application/yaml", []byte(body))
				if (code == http.StatusCreated) != (want == "") || !strings.Contains(strings.ReplaceAll(string(answer), `\"`, `"`), want) {
					t.Errorf("%s %s %s: %d %s, want %q", version, kind, spec, code, answer, want)
				}
			}
		}
		beta := fmt.Sprintf("%s/apis/instancetype.kubevirt.io/v1beta1/%s%ss", s.url, scope, strings.ToLower(kind))
		body := fmt.Sprintf("{apiVersion: instancetype.kubevirt.io/v1beta1, kind: %s, metadata: {name: a}, spec: {cpu: {guest: 1}, memory: {guest: 1Gi}}}", kind)
		if code, answer := s.request(t, http.MethodPost, beta, "application/yaml", []byte(body)); code != http.StatusCreated {
			t.Errorf("%s: %d %s", kind, code, answer)
		}
	}
	for name, want := range map[string]string{
		"vminstancetype": "virtualmachineinstancetype", "vmf": "virtualmachineinstancetype", "vmclusterinstancetype": "virtualmachineclusterinstancetype",
		"vmcf": "virtualmachineclusterinstancetype", "vmpref": "virtualmachinepreference", "vmp": "virtualmachinepreference", "vmcp": "virtualmachineclusterpreference",
	} {
		if got := strings.TrimSpace(s.kubectl(t, "get", name, "-o", "name")); got != want+".instancetype.kubevirt.io/a" {
			t.Errorf("kubectl get %s prints %q, want a %s", name, got, want)
		}
	}
	if got := s.kubectl(t, "get", "vmf", "a", "-o", "jsonpath={.apiVersion}"); got != "instancetype.kubevirt.io/v1" {
		t.Errorf("kubectl reads it as %q, want v1", got)
	}
}
