package virtualmachines_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/test/cluster"
)

// managed are objects that the autopilot makes on a cluster with vmlet alone.
func managed() [][]string {
	return [][]string{
		{"kubevirt", "kubevirt", "-n", "vmlet"},
		{"priorityclass", "vmlet-vm"},
		{"priorityclass", "vmlet-vm-critical"},
		{"priorityclass", "vmlet-vm-preemptible"},
		{"runtimeclass", "vmlet"},
	}
}

// testAutopilot: the autopilot does nothing until it is asked to; then it makes the KubeVirt object
// and all else, with which VMs run, and puts back what others change; it stops when it is asked to,
// and is gone when it is deleted, and nothing of the platform with it.
func (v *installed) testAutopilot(t *testing.T) {
	_, err := v.ApplyFolder(v.ctx, "../../deploy/autopilot", "--server-side")
	must(t, err)
	must(t, v.RolledOut(v.ctx, "vmlet", "deployment/vmlet-autopilot"))
	v.kubectl(t, "delete", "kubevirt", "kubevirt", "-n", "vmlet")
	v.autopilotOff(t)
	if made := v.kubectl(t, "get", "kubevirts,priorityclasses,runtimeclasses", "-A", "-l", "platform.kubevirt.io/managed-by", "-o", "name"); made != "" {
		t.Errorf("the autopilot is off, and has made\n%s", made)
	}

	v.kubectl(t, "create", "configmap", "vmlet-platform", "-n", "vmlet")
	v.kubectl(t, "annotate", "configmap", "vmlet-platform", "-n", "vmlet", "platform.kubevirt.io/use-emulation=true", "platform.kubevirt.io/autopilot=true")
	for _, object := range managed() {
		v.ownedByAutopilot(t, object)
	}
	v.kubectl(t, "wait", "--for=jsonpath={.status.phase}=Deployed", "kubevirt/kubevirt", "-n", "vmlet", "--timeout=24h")
	vm := machine(t, "piloted", kubevirtv1.RunStrategyAlways, idle)
	vm.Spec.Template.Spec.PriorityClassName = "vmlet-vm"
	v.create(t, vm)
	v.phase(t, "piloted", kubevirtv1.PhaseRunning)

	v.putBack(t, `{"spec": {"configuration": {"developerConfiguration": {"useEmulation": false}}}}`,
		"{.spec.configuration.developerConfiguration.useEmulation}", "true", managed()[0]...)
	v.putBack(t, `{"description": "mine"}`, "{.description}", "VMs in general. They are placed before pods that have no priority.", managed()[1]...)
	v.kubectl(t, "delete", "runtimeclass", "vmlet")
	v.ownedByAutopilot(t, managed()[4])
	v.autopilotTells(t)
	v.tunesNode(t)

	v.kubectl(t, "annotate", "configmap", "vmlet-platform", "-n", "vmlet", "--overwrite", "platform.kubevirt.io/autopilot=false")
	v.autopilotOff(t)
	v.kubectl(t, "patch", "priorityclass", "vmlet-vm", "--type=merge", "-p", `{"description": "mine"}`)
	v.kubectl(t, "rollout", "restart", "deployment/vmlet-autopilot", "-n", "vmlet")
	must(t, v.RolledOut(v.ctx, "vmlet", "deployment/vmlet-autopilot"))
	v.autopilotOff(t)
	if got := v.kubectl(t, "get", "priorityclass", "vmlet-vm", "-o", "jsonpath={.description}"); got != "mine" {
		t.Errorf("the autopilot is off, and has made the description %q again", got)
	}

	v.kubectl(t, "delete", "-k", "../../deploy/autopilot")
	for _, object := range managed() {
		v.kubectl(t, append([]string{"get"}, object...)...) // it is still there
	}
	v.remove(t, vm)
	v.noMachine(t, "piloted")
	v.kubectl(t, "delete", "priorityclasses,runtimeclasses", "-l", "platform.kubevirt.io/managed-by=virt-platform-autopilot")
	v.kubectl(t, "delete", "configmap", "vmlet-platform", "vmlet-node-tuning", "-n", "vmlet")
	v.kubectl(t, "delete", "kubevirt", "kubevirt", "-n", "vmlet")
	must(t, v.Apply(v.ctx, surroundings))
	v.kubectl(t, "wait", "--for=jsonpath={.status.phase}=Deployed", "kubevirt/kubevirt", "-n", "vmlet", "--timeout=24h")
}

// autopilotOff waits until the replica that leads has last said that it is off, and has looked at everything
// by then.
func (v *installed) autopilotOff(t *testing.T) {
	t.Helper()
	var log string
	v.eventually(t, func() bool {
		log, _ = v.Kubectl(v.ctx, "logs", v.pilot(), "-n", "vmlet")
		off, on := strings.LastIndex(log, "keeping idle"), strings.LastIndex(log, "autopilot is on")
		return off > on
	}, func() string { return "the autopilot does not say that it is off: " + log })
}

// pilot is the pod that leads; "": none does.
func (v *installed) pilot() string {
	leader, _ := v.Kubectl(v.ctx, "get", "lease", "vmlet-autopilot", "-n", "vmlet", "-o", "jsonpath={.spec.holderIdentity}")
	pod, _, _ := strings.Cut(leader, "_")
	return pod
}

// autopilotTells: events and metrics are those that documents, alerts and dashboards name.
func (v *installed) autopilotTells(t *testing.T) {
	t.Helper()
	var events string
	v.eventually(t, func() bool {
		events, _ = v.Kubectl(v.ctx, "get", "events", "-n", "vmlet", "--field-selector=reportingComponent=vmlet-autopilot", "-o", "jsonpath={.items[*].reason}")
		return strings.Contains(events, "AssetApplied") && strings.Contains(events, "DriftCorrected")
	}, func() string { return "the autopilot's events are " + events })
	address, err := v.Address(v.ctx, cluster.Pod{Namespace: "vmlet", Name: v.pilot()}, 8080)
	must(t, err)
	response, err := http.Get("http://" + address + "/metrics")
	must(t, err)
	defer response.Body.Close()
	metrics, err := io.ReadAll(response.Body)
	must(t, err)
	for _, line := range []string{
		`kubevirt_autopilot_compliance_status{kind="PriorityClass",name="vmlet-vm",namespace=""} 1`,
		`kubevirt_autopilot_paused_resources{kind="KubeVirt",name="kubevirt",namespace="vmlet"} 0`,
		`leader_election_master_status{name="vmlet-autopilot"} 1`,
	} {
		if !strings.Contains(string(metrics), "\n"+line+"\n") {
			t.Errorf("the autopilot has no metric %s:\n%s", line, metrics)
		}
	}
	// Nobody has asked for what this cluster lacks.
	if wants := `kubevirt_autopilot_dependency_opted_in{group="machineconfiguration.openshift.io"`; strings.Contains(string(metrics), wants) {
		t.Errorf("MachineConfigs are missed:\n%s", metrics)
	}
}

// tunesNode: what annotations want of nodes is written there, by the DaemonSet alone.
func (v *installed) tunesNode(t *testing.T) {
	t.Helper()
	v.kubectl(t, "annotate", "configmap", "vmlet-platform", "-n", "vmlet", "platform.kubevirt.io/enable-swap=true", "platform.kubevirt.io/enable-node-tuning=true")
	v.ownedByAutopilot(t, []string{"configmap", "vmlet-node-tuning", "-n", "vmlet"})
	folder, kubelet := t.TempDir(), t.TempDir()
	from, err := filepath.Abs("../../deploy/node-tuning")
	must(t, err)
	from, err = filepath.Rel(folder, from)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), fmt.Appendf(nil, `
resources: [%q]
patches:
  - target: {kind: DaemonSet}
    patch: '[{"op": "replace", "path": "/spec/template/spec/volumes/1/hostPath/path", "value": %q}]'
`, from, kubelet), 0o600))
	_, err = v.ApplyFolder(v.ctx, folder, "--server-side")
	must(t, err)
	v.eventually(t, func() bool {
		content, err := os.ReadFile(filepath.Join(kubelet, "90-vmlet-swap.conf"))
		return err == nil && strings.Contains(string(content), "LimitedSwap")
	}, func() string {
		log, err := v.Kubectl(v.ctx, "logs", "daemonset/vmlet-node-tuning", "-n", "vmlet")
		return fmt.Sprintf("the node has no drop-in: %s%v", log, err)
	})
	v.kubectl(t, "delete", "-k", folder)
}

// ownedByAutopilot waits until an object is there and has fields that the autopilot has applied.
func (v *installed) ownedByAutopilot(t *testing.T, object []string) {
	t.Helper()
	var managers string
	v.eventually(t, func() bool {
		managers, _ = v.Kubectl(v.ctx, append(append([]string{"get"}, object...), "-o", `jsonpath={.metadata.managedFields[?(@.operation=="Apply")].manager}`)...)
		return slices.Contains(strings.Fields(managers), "virt-platform-autopilot")
	}, func() string { return fmt.Sprintf("%q is applied by %q, want the autopilot", object, managers) })
}

// putBack changes an object, and waits until a field of it is again as the autopilot has it.
func (v *installed) putBack(t *testing.T, patch, path, want string, object ...string) {
	t.Helper()
	before := v.kubectl(t, append(append([]string{"get"}, object...), "-o", "jsonpath={.metadata.resourceVersion}")...)
	v.kubectl(t, append(append([]string{"patch"}, object...), "--type=merge", "-p", patch)...)
	var got string
	v.eventually(t, func() bool {
		got, _ = v.Kubectl(v.ctx, append(append([]string{"get"}, object...), "-o", "jsonpath={.metadata.resourceVersion} "+path)...)
		version, value, _ := strings.Cut(got, " ")
		return version != before && value == want
	}, func() string { return fmt.Sprintf("%q has %s %q, want %q", object, path, got, want) })
}
