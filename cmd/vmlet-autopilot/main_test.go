package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// call runs the program.
func call(args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	code = run(args, &o, &e)
	return code, o.String(), e.String()
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what is made now: look at the difference, and run the test with -update\n%s", file, got)
	}
}

// TestRender: what is shown of clusters that files describe.
func TestRender(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(inputs) < 4 {
		t.Fatalf("%d files, %v", len(inputs), err)
	}
	for _, file := range inputs {
		code, out, errOut := call("render", "--file", file, "--output", "status")
		if code != 0 {
			t.Errorf("%s: exit status %d: %s", file, code, errOut)
		}
		golden(t, strings.TrimSuffix(file, ".in.yaml")+".status", out)
	}
	_, out, _ := call("render", "--hco-file", "testdata/openshift.in.yaml", "--asset", "psi-enable")
	golden(t, "testdata/psi-enable.yaml", out)
	_, out, _ = call("render", "--file", "testdata/off.in.yaml", "--scope", "vm-runtime-class", "--output", "json")
	golden(t, "testdata/runtime-class.json", out)
}

// TestExitStatus: 0, 1 if an asset failed, 2 for whoever calls.
func TestExitStatus(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const platform = "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata:\n  name: kv\n  namespace: vmlet\n  annotations:\n    platform.kubevirt.io/autopilot: 'true'\n"
	good := file("good.yaml", platform)
	failing := file("failing.yaml", platform+"    platform.kubevirt.io/runtime-handler: "+strings.Repeat("x", 5000)+"\n")
	with := func(name, annotations string) []string {
		return []string{"render", "--output", "status", "--file", file(name, strings.Replace(platform, "    platform.kubevirt.io/autopilot: 'true'\n", annotations, 1))}
	}
	const gate, disabled = "    platform.kubevirt.io/autopilot: ", "    platform.kubevirt.io/autopilot: vm-priority-classes\n    platform.kubevirt.io/disabled-resources: "
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"render", "--file", good}, 0, ""},
		{with("gate-name", gate+"'vm-priority-classes,nosuch'\n"), 1, `lists "nosuch", which is neither an asset nor a group`},
		{with("gate-case", gate+"'True'\n"), 1, `"true", in small letters, is all of them`},
		{with("gate-word", gate+"enabled\n"), 1, `"true", in small letters, is all of them`},
		{with("gate-type", gate+"true\n"), 2, "platform.kubevirt.io/autopilot is no text: put its value into quotes"},
		{with("rules-list", disabled+"'PriorityClass/vmlet-vm,PriorityClass/vmlet-vm-critical'\n"), 1, "is no YAML list of kind, name and namespace"},
		{with("rules-object", disabled+"'{kind: PriorityClass, name: vmlet-vm}'\n"), 1, "is no YAML list of kind, name and namespace"},
		{with("rules-broken", disabled+"'[{'\n"), 1, "is no YAML list of kind, name and namespace"},
		{with("rules-nameless", disabled+"'[{kind: PriorityClass}]'\n"), 1, "disabled-resources[0]: kind and name are required"},
		{with("rules-case", disabled+"'[{kind: priorityclass, name: vmlet-vm}]'\n"), 1, "disabled-resources: priorityclass/vmlet-vm is no object of the catalogue, which has PriorityClass/"},
		{with("rules-none", disabled+"'[{kind: MachineConfig, name: 50-swap-enable}]'\n"), 1, "MachineConfig/50-swap-enable is no object of the catalogue, which has MachineConfig/"},
		{with("rules-kind", disabled+"'[{kind: Widget, name: x}]'\n"), 1, "Widget/x is no object of the catalogue, which has none of that kind"},
		{with("rules-good", disabled+"'[{kind: MachineConfig, name: \"90-*\"}]'\n"), 0, ""},
		{[]string{"render", "--file", failing}, 1, ""},
		{[]string{"render", "--file", failing, "--asset", "vm-priority-default"}, 0, ""},
		{[]string{"render"}, 2, "choose --file or --kubeconfig"},
		{[]string{"render", "--file", good, "--kubeconfig", good}, 2, "choose --file or --kubeconfig"},
		{[]string{"render", "--file", good, "--asset", "none", "--output", "xml"}, 2, "--asset: there is no asset \"none\""},
		{[]string{"render", "--file", good, "--asset", "none", "--output", "xml"}, 2, "--output: \"xml\""},
		{[]string{"render", "--file", filepath.Join(dir, "none")}, 2, "no such file"},
		{[]string{"render", "--file", file("bad.yaml", "a: {")}, 2, "document 0"},
		{[]string{"render", "--file", file("other.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n")}, 2, "there is no HyperConverged object"},
		{[]string{"render", "--kubeconfig", filepath.Join(dir, "none")}, 2, "--kubeconfig"},
		{[]string{"render", "--colour"}, 2, "unknown flag"},
		{[]string{"render", "x"}, 2, "unknown command"},
		{[]string{"x"}, 2, "there is no command \"x\""},
		{nil, 2, "choose run"},
		{[]string{"run", "--log-format", "xml"}, 2, "--log-format"},
		{[]string{"run", "--debug-address", "0.0.0.0:8081"}, 2, "--debug-address"},
		{[]string{"rbac"}, 0, ""},
	} {
		code, _, errOut := call(c.args...)
		if code != c.code || !strings.Contains(errOut, c.says) {
			t.Errorf("%q: exit status %d, %s; want %d, %q", c.args, code, errOut, c.code, c.says)
		}
	}
}

// TestRole: deploy/ has the roles that the catalogue needs.
func TestRole(t *testing.T) {
	_, out, _ := call("rbac")
	golden(t, "../../deploy/autopilot/role.yaml", out)
	if strings.Contains(out, "'*'") || strings.Contains(out, "\"*\"") {
		t.Error("a right is on everything")
	}
	_, other, _ := call("rbac", "--namespace", "elsewhere")
	if !strings.Contains(other, "namespace: elsewhere") || strings.Contains(other, "namespace: vmlet") {
		t.Error("roles for another namespace name vmlet")
	}
}
