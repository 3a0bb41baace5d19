// Package crd holds the definitions in this folder against a real API server.
package crd

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// plurals are the definitions' kinds, as they are in paths.
var plurals = map[string]string{
	"VirtualMachine":         "virtualmachines",
	"VirtualMachineInstance": "virtualmachineinstances",
	"KubeVirt":               "kubevirts",
}

// TestDefinitions has one cluster for all, as a cluster takes longer than the tests.
func TestDefinitions(t *testing.T) {
	start(t).all(t)
}

func (s *server) all(t *testing.T) {
	t.Run("conditions", s.testConditions)
	t.Run("manifests", s.testManifests)
	t.Run("unknown fields", s.testUnknownFields)
	t.Run("refusals", s.testRefusals)
	t.Run("accepted", s.testAccepted)
	t.Run("defaults", s.testDefaults)
	t.Run("status", s.testStatus)
	t.Run("kubectl", s.testKubectl)
	t.Run("v1alpha3", s.testOldVersion)
	t.Run("instancetypes", s.testTypes)
	t.Run("pools", s.testPools)
	t.Run("replicasets", s.testReplicaSets)
}

// testConditions: the API server has no fault to find with a definition.
func (s *server) testConditions(t *testing.T) {
	for _, plural := range plurals {
		var definition struct {
			Status struct {
				Conditions []struct{ Type, Status, Message string }
			}
		}
		decode(t, []byte(s.kubectl(t, "get", "crd", plural+".kubevirt.io", "-o", "json")), &definition)
		got := map[string]string{}
		for _, c := range definition.Status.Conditions {
			got[c.Type] = c.Status
			if c.Type == "NonStructuralSchema" || c.Status != "True" {
				t.Errorf("%s: %s is %s: %s", plural, c.Type, c.Status, c.Message)
			}
		}
		for _, want := range []string{"Established", "NamesAccepted"} {
			if got[want] != "True" {
				t.Errorf("%s: %s is %q, want True", plural, want, got[want])
			}
		}
	}
}

// testManifests: manifests that use every field of published ones are accepted.
func (s *server) testManifests(t *testing.T) {
	files, err := filepath.Glob("../../api/kubevirt/v1/testdata/manifests/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no manifests", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(string(text), "\n---\n") {
			_, kind, _ := strings.Cut(document, "\nkind: ")
			kind, _, _ = strings.Cut(kind, "\n")
			if _, refusal := s.check(t, plurals[kind], document); refusal != nil {
				t.Errorf("%s: %s", file, refusal.Message)
			}
		}
	}
}

// testUnknownFields: a field that no schema has is named, with its path.
func (s *server) testUnknownFields(t *testing.T) {
	for field, spec := range map[string]string{
		"spec.domain.volumes":                               `{domain: {devices: {}, volumes: []}}`,
		"spec.domain.cpu.ioThreadsPolicy":                   `{domain: {devices: {}, cpu: {ioThreadsPolicy: auto}}}`,
		"spec.domain.devices.disks[0].volumeName":           `{domain: {devices: {disks: [{name: a, volumeName: a}]}}}`,
		"spec.domain.devices.disks[0].disk.dev":             `{domain: {devices: {disks: [{name: a, disk: {dev: vda}}]}}}`,
		"spec.networks[0].genie":                            `{domain: {devices: {}}, networks: [{name: a, pod: {}, genie: {}}]}`,
		"spec.terminationgraceperiodseconds":                `{domain: {devices: {}}, terminationgraceperiodseconds: 0}`,
		"spec.volumes[0].persistentVolumeClaim.claimname":   `{domain: {devices: {}}, volumes: [{name: a, persistentVolumeClaim: {claimName: a, claimname: a}}]}`,
		"spec.accessCredentials[0].sshPublicKey.source.key": `{domain: {devices: {}}, accessCredentials: [{sshPublicKey: {source: {key: a}, propagationMethod: {noCloud: {}}}}]}`,
	} {
		_, refusal := s.check(t, "virtualmachineinstances", object("VirtualMachineInstance", spec))
		if refusal == nil {
			t.Errorf("%s is accepted", field)
		} else if want := `unknown field "` + field + `"`; !strings.Contains(refusal.Message, want) {
			t.Errorf("%s: refused with %q, want %q", field, refusal.Message, want)
		}
	}
}

// refusals are specifications that a schema refuses, with the field that is at fault.
var refusals = []struct{ kind, spec, field, message string }{
	{"VirtualMachine", `{template: {spec: {domain: {devices: {}}}}}`, "spec", "exactly one of runStrategy and running"},
	{"VirtualMachine", `{running: true, runStrategy: Always, template: {}}`, "spec", "exactly one of runStrategy and running"},
	{"VirtualMachine", `{runStrategy: Always}`, "spec.template", "Required value"},
	{"VirtualMachine", `{runStrategy: Always, template: {spec: {}}}`, "spec.template.spec.domain", "Required value"},
	{"VirtualMachine", `{runStrategy: Always, template: {}, hibernateStrategy: {warningTimeoutSeconds: 0}}`, "spec.hibernateStrategy.warningTimeoutSeconds", "greater than or equal to 1"},
	{"VirtualMachine", `{runStrategy: Always, template: {}, HibernateStrategy: {mode: save}}`, "spec.HibernateStrategy", "it is written hibernateStrategy"},
	{"VirtualMachine", `{runStrategy: Always, template: {}, StartStrategy: restore}`, "spec.StartStrategy", "it is written startStrategy"},
	{"VirtualMachine", `{runStrategy: Always, template: {}, hibernateStrategy: {timeoutSeconds: 500}}`, "spec.hibernateStrategy.timeoutSeconds", "it is written warningTimeoutSeconds"},
	{"VirtualMachine", `{runStrategy: Always, template: {}, updateVolumesStrategy: Never}`, "spec.updateVolumesStrategy", "Unsupported value"},
	{"VirtualMachine", `{runStrategy: Always, template: {}, dataVolumeTemplates: [{spec: {source: {blank: {}, upload: {}}}}]}`, "spec.dataVolumeTemplates[0].spec.source", "at most one source"},

	{"VirtualMachineInstance", `{}`, "spec.domain", "Required value"},
	{"VirtualMachineInstance", `{domain: {}}`, "spec.domain.devices", "Required value"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, volumes: [{name: a}]}`, "spec.volumes[0]", "exactly one source"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, volumes: [{name: a, emptyDisk: {capacity: 1Gi}, secret: {secretName: a}}]}`, "spec.volumes[0]", "exactly one source"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, volumes: [{name: a, emptyDisk: {capacity: 1Gi}}, {name: a, secret: {}}]}`, "spec.volumes[1]", "Duplicate value"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, volumes: [{name: a, emptyDisk: {capacity: much}}]}`, "spec.volumes[0].emptyDisk.capacity", "should match"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, volumes: [{name: a, cloudInitNoCloud: {userData: a, secretRef: {name: a}}}]}`, "spec.volumes[0].cloudInitNoCloud", "at most one of secretRef"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, volumes: [{name: a, cloudInitNoCloud: {networkData: a, networkDataBase64: YQ==}}]}`, "spec.volumes[0].cloudInitNoCloud", "at most one of networkDataSecretRef"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, volumes: [{name: a, sysprep: {secret: {name: a}, configMap: {name: a}}}]}`, "spec.volumes[0].sysprep", "at most one of configMap"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, volumes: [{name: a, containerPath: {path: relative}}]}`, "spec.volumes[0].containerPath.path", "begin with /"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, volumes: [{name: a, containerPath: {path: /a/../b}}]}`, "spec.volumes[0].containerPath.path", "begin with /"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, volumes: [{name: a, containerPath: {path: /a, readOnly: false}}]}`, "spec.volumes[0].containerPath.readOnly", "has to be true"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, volumes: [{name: a, hostDisk: {path: /a, type: File}}]}`, "spec.volumes[0].hostDisk.type", "Unsupported value"},
	{"VirtualMachineInstance", `{domain: {devices: {disks: [{name: a, disk: {}, cdrom: {}}]}}}`, "spec.domain.devices.disks[0]", "at most one of disk"},
	{"VirtualMachineInstance", `{domain: {devices: {disks: [{name: a, disk: {bus: ide}}]}}}`, "spec.domain.devices.disks[0].disk.bus", "Unsupported value"},
	{"VirtualMachineInstance", `{domain: {devices: {disks: [{name: a, bootOrder: 0}]}}}`, "spec.domain.devices.disks[0].bootOrder", "greater than or equal to 1"},
	{"VirtualMachineInstance", `{domain: {devices: {disks: [{name: a, cache: some}]}}}`, "spec.domain.devices.disks[0].cache", "Unsupported value"},
	{"VirtualMachineInstance", `{domain: {devices: {disks: [{name: a, blockSize: {custom: {}, matchVolume: {}}}]}}}`, "spec.domain.devices.disks[0].blockSize", "at most one of custom"},
	{"VirtualMachineInstance", `{domain: {devices: {disks: [{disk: {}}]}}}`, "spec.domain.devices.disks[0].name", "Required value"},
	{"VirtualMachineInstance", `{domain: {devices: {interfaces: [{name: a, bridge: {}, masquerade: {}}]}}}`, "spec.domain.devices.interfaces[0]", "at most one of masquerade"},
	{"VirtualMachineInstance", `{domain: {devices: {interfaces: [{name: a, ports: [{port: 65536}]}]}}}`, "spec.domain.devices.interfaces[0].ports[0].port", "less than or equal to 65535"},
	{"VirtualMachineInstance", `{domain: {devices: {interfaces: [{name: a, portRanges: [{protocol: TCP, start: 9, end: 8}]}]}}}`, "spec.domain.devices.interfaces[0].portRanges[0]", "start has to be at most end"},
	{"VirtualMachineInstance", `{domain: {devices: {inputs: [{name: a, type: mouse}]}}}`, "spec.domain.devices.inputs[0].type", "Unsupported value"},
	{"VirtualMachineInstance", `{domain: {devices: {watchdog: {name: a, i6300esb: {}, diag288: {}}}}}`, "spec.domain.devices.watchdog", "at most one of i6300esb"},
	{"VirtualMachineInstance", `{domain: {devices: {}, cpu: {cores: -1}}}`, "spec.domain.cpu.cores", "greater than or equal to 0"},
	{"VirtualMachineInstance", `{domain: {devices: {}, cpu: {features: [{name: vmx, policy: maybe}]}}}`, "spec.domain.cpu.features[0].policy", "Unsupported value"},
	{"VirtualMachineInstance", `{domain: {devices: {}, firmware: {bootloader: {bios: {}, efi: {}}}}}`, "spec.domain.firmware.bootloader", "at most one of bios"},
	{"VirtualMachineInstance", `{domain: {devices: {}, clock: {utc: {}, timezone: UTC}}}`, "spec.domain.clock", "at most one of utc"},
	{"VirtualMachineInstance", `{domain: {devices: {}, launchSecurity: {sev: {}, tdx: {}}}}`, "spec.domain.launchSecurity", "at most one of sev"},
	{"VirtualMachineInstance", `{domain: {devices: {}, rebootPolicy: Never}}`, "spec.domain.rebootPolicy", "Unsupported value"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, networks: [{name: a}]}`, "spec.networks[0]", "exactly one of pod"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, evictionStrategy: Hope}`, "spec.evictionStrategy", "Unsupported value"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, readinessProbe: {periodSeconds: 1}}`, "spec.readinessProbe", "exactly one of exec"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, livenessProbe: {guestAgentPing: {}, tcpSocket: {port: 1}}}`, "spec.livenessProbe", "exactly one of exec"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, resourceClaims: [{name: a}]}`, "spec.resourceClaims[0]", "exactly one of resourceClaimName"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, accessCredentials: [{}]}`, "spec.accessCredentials[0]", "exactly one of sshPublicKey"},
	{"VirtualMachineInstance", `{domain: {devices: {}}, accessCredentials: [{sshPublicKey: {source: {}, propagationMethod: {}}}]}`, "spec.accessCredentials[0].sshPublicKey.propagationMethod", "exactly one of noCloud"},

	{"KubeVirt", `{configuration: {hypervisors: [{name: kvm}, {name: kvm}]}}`, "spec.configuration.hypervisors", "at most 1 item"},
	{"KubeVirt", `{configuration: {hypervisorConfiguration: {name: "` + strings.Repeat("x", 64) + `"}}}`, "spec.configuration.hypervisorConfiguration.name", "Too long"},
	{"KubeVirt", `{configuration: {defaultHibernateConfig: {HibernateStrategy: {mode: save}}}}`, "spec.configuration.defaultHibernateConfig.HibernateStrategy", "it is written hibernateStrategy"},
	{"KubeVirt", `{configuration: {defaultHibernateConfig: {StartStrategy: restore}}}`, "spec.configuration.defaultHibernateConfig.StartStrategy", "it is written startStrategy"},
	{"KubeVirt", `{configuration: {vmRolloutStrategy: Later}}`, "spec.configuration.vmRolloutStrategy", "Unsupported value"},
	{"KubeVirt", `{configuration: {developerConfiguration: {memoryOvercommit: 9}}}`, "spec.configuration.developerConfiguration.memoryOvercommit", "greater than or equal to 10"},
}

func (s *server) testRefusals(t *testing.T) {
	for _, test := range refusals {
		_, refusal := s.check(t, plurals[test.kind], object(test.kind, test.spec))
		if refusal == nil || refusal.Details == nil {
			t.Errorf("%s %s: not refused for a field, but %v", test.kind, test.spec, refusal)
			continue
		}
		found := false
		for _, cause := range refusal.Details.Causes {
			found = found || cause.Field == test.field && strings.Contains(cause.Message, test.message)
		}
		if !found {
			t.Errorf("%s %s: refused with %q, want %s: %s", test.kind, test.spec, refusal.Message, test.field, test.message)
		}
	}
}

// testAccepted: what a schema must leave to admission, or to whoever it is for.
func (s *server) testAccepted(t *testing.T) {
	for name, test := range map[string]struct{ kind, spec string }{
		"another spelling of a run strategy": {"VirtualMachine", `{runStrategy: Running, template: {spec: {domain: {devices: {}}}}}`},
		"an empty template":                  {"VirtualMachine", `{runStrategy: Halted, template: {}}`},
		"null for unset":                     {"VirtualMachine", `{running: null, runStrategy: Halted, template: {metadata: null}, instancetype: null}`},
		"a template's unknown metadata":      {"VirtualMachine", `{runStrategy: Halted, template: {metadata: {unknown: 1}}}`},
		"a clock's unknown field":            {"VirtualMachineInstance", `{domain: {devices: {}, clock: {unknown: 1}}}`},
		"empty for unset":                    {"VirtualMachineInstance", `{domain: {devices: {disks: [{name: a, cache: "", disk: {bus: ""}}]}, machine: {type: ""}}}`},
		"a quantity as a number":             {"VirtualMachineInstance", `{domain: {devices: {}, memory: {guest: 1073741824}}}`},
		"a quantity in decimal":              {"VirtualMachineInstance", `{domain: {devices: {}, memory: {guest: 1.5G}}}`},
		"a port as a name":                   {"VirtualMachineInstance", `{domain: {devices: {}}, readinessProbe: {tcpSocket: {port: web}}}`},
		"a rate with a fraction":             {"KubeVirt", `{configuration: {apiConfiguration: {restClient: {rateLimiter: {tokenBucketRateLimiter: {qps: 0.5, burst: 1}}}}}}`},
	} {
		if _, refusal := s.check(t, plurals[test.kind], object(test.kind, test.spec)); refusal != nil {
			t.Errorf("%s: %s", name, refusal.Message)
		}
	}
}

func (s *server) testDefaults(t *testing.T) {
	for _, test := range []struct{ kind, object, want string }{
		{"VirtualMachineInstance", object("VirtualMachineInstance", `{domain: {devices: {}}, volumes: [{name: a, containerPath: {path: /a}}]}`), `"containerPath":{"path":"/a","readOnly":true}`},
		{"VirtualMachineInstance", object("VirtualMachineInstance", `{domain: {devices: {}}, volumes: [{name: a, configMap: {}}]}`), `"configMap":{"name":""}`},
		{"KubeVirt", object("KubeVirt", `{configuration: {confidentialCompute: {tdx: {attestation: {}}}}}`), `"attestation":{"enforced":false,"qgsSocketPath":"/var/run/tdx-qgs/qgs.socket"}`},
	} {
		kept, refusal := s.check(t, plurals[test.kind], test.object)
		if refusal != nil {
			t.Errorf("%s: %s", test.object, refusal.Message)
		} else if !strings.Contains(string(kept), test.want) {
			t.Errorf("%s: kept as\n%s\nwant %s", test.object, kept, test.want)
		}
	}
}

// testStatus: a status is written by its subresource alone, with conditions as KubeVirt's
// clients write them.
func (s *server) testStatus(t *testing.T) {
	status := `{"conditions": [{"type": "Ready", "status": "False", "lastProbeTime": null}]}`
	for kind, spec := range map[string]string{
		"VirtualMachine":         `{runStrategy: Halted, template: {spec: {domain: {devices: {}}}}}`,
		"VirtualMachineInstance": `{domain: {devices: {}}}`,
		"KubeVirt":               `{}`,
	} {
		path := "default/" + plurals[kind]
		if code, answer := s.ask(t, http.MethodPost, path, "application/yaml", []byte(object(kind, spec))); code != http.StatusCreated {
			t.Fatalf("%s: %d %s", kind, code, answer)
		}
		patch := []byte(`{"status": ` + status + `}`)
		for _, below := range []string{"", "/status"} {
			want := below == "/status"
			code, answer := s.ask(t, http.MethodPatch, path+"/a"+below, "application/merge-patch+json", patch)
			if code != http.StatusOK {
				t.Errorf("%s%s: %d %s", kind, below, code, answer)
			}
			if got := strings.Contains(string(answer), `"type":"Ready"`); got != want {
				t.Errorf("%s%s: status written is %v, want %v: %s", kind, below, got, want, answer)
			}
			if want && kind == "VirtualMachine" && !strings.Contains(string(answer), `"printableStatus":"Stopped"`) {
				t.Errorf("%s: printableStatus is not Stopped by default: %s", kind, answer)
			}
		}
	}
}

// testKubectl: names, columns and descriptions as a user sees them. testStatus made the
// objects.
func (s *server) testKubectl(t *testing.T) {
	for names, want := range map[string]string{
		"vm vms":   "NAME AGE STATUS READY",
		"vmi vmis": "NAME AGE PHASE IP NODENAME READY",
		"kv kvs":   "NAME AGE PHASE",
	} {
		for name := range strings.FieldsSeq(names) {
			header, _, _ := strings.Cut(s.kubectl(t, "get", name), "\n")
			if got := strings.Join(strings.Fields(header), " "); got != want {
				t.Errorf("kubectl get %s prints %q, want %q", name, got, want)
			}
		}
	}
	if got := s.kubectl(t, "get", "all", "-o", "name"); !strings.Contains(got, "virtualmachine.kubevirt.io/a") {
		t.Errorf("kubectl get all prints %q, want virtualmachine.kubevirt.io/a among it", got)
	}
	for field, want := range map[string]string{
		"vm.spec.runStrategy":                        "When the VM runs",
		"vmi.spec.domain.devices.disks.cache":        "ENUM:",
		"kv.spec.configuration.permittedHostDevices": "Devices of hosts",
	} {
		if got := s.kubectl(t, "explain", field); !strings.Contains(got, want) {
			t.Errorf("kubectl explain %s prints\n%s\nwant %q in it", field, got, want)
		}
	}
}

// testOldVersion: a manifest of v1alpha3 is taken, and kept as v1.
func (s *server) testOldVersion(t *testing.T) {
	url := s.url + "/apis/kubevirt.io/v1alpha3/namespaces/default/virtualmachines?fieldValidation=Strict"
	old := `{apiVersion: kubevirt.io/v1alpha3, kind: VirtualMachine, metadata: {name: old, namespace: default}, spec: {running: false, template: {spec: {domain: {devices: {}}}}}}`
	code, answer := s.request(t, http.MethodPost, url, "application/yaml", []byte(old))
	if code != http.StatusCreated {
		t.Fatalf("not created: %d %s", code, answer)
	}
	if got := s.kubectl(t, "get", "vm", "old", "-o", "jsonpath={.apiVersion} {.spec.running}"); got != "kubevirt.io/v1 false" {
		t.Errorf("kept as %q, want kubevirt.io/v1 false", got)
	}
	refused := strings.Replace(old, "running: false", "running: false, unknown: 1", 1)
	if code, answer := s.request(t, http.MethodPost, url, "application/yaml", []byte(refused)); code == http.StatusCreated {
		t.Errorf("an unknown field is accepted: %s", answer)
	}
}

// object is one with the name a, in YAML's flow style.
func object(kind, spec string) string {
	return `{apiVersion: kubevirt.io/v1, kind: ` + kind + `, metadata: {name: a}, spec: ` + spec + `}`
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}
