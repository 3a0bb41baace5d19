package evaluate_test

import (
	"strings"
	"testing"

	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/evaluate"
	"github.com/vmlet/vmlet/autopilot/facts"
)

// TestAnnotations: the fault of a rule that fits nothing lists what there is of its kind.
func TestAnnotations(t *testing.T) {
	c, err := catalog.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ rules, want string }{
		{`[{kind: PriorityClass, name: "vmlet-vm-*"}, {kind: MachineConfig, name: 90-worker-swap-online}]`, ""},
		{`[{kind: KubeVirt, name: kubevirt, namespace: vmlet}]`, ""},
		{`[{kind: KubeVirt, name: kubevirt, namespace: other}]`, "KubeVirt/other/kubevirt is no object of the catalogue, which has KubeVirt/vmlet/kubevirt"},
		{`[{kind: MachineConfig, name: 50-swap-enable}]`, "MachineConfig/50-swap-enable is no object of the catalogue, which has MachineConfig/50-virt-"},
		{`[{kind: priorityclass, name: vmlet-vm}]`, "priorityclass/vmlet-vm is no object of the catalogue, which has PriorityClass/vmlet-vm, PriorityClass/vmlet-vm-critical"},
		{`[{kind: Secret, name: "*"}]`, "Secret/* is no object of the catalogue, which has none of that kind"},
		{`[{kind: Secret}]`, "kind and name are required"},
	} {
		objects, err := facts.Parse([]byte("apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata:\n  name: kubevirt\n  namespace: vmlet\n" +
			"  annotations:\n    platform.kubevirt.io/autopilot: \"true\"\n    platform.kubevirt.io/disabled-resources: '" + test.rules + "'\n"))
		if err != nil {
			t.Fatal(err)
		}
		f, err := objects.Facts(t.Context(), "vmlet")
		if err != nil {
			t.Fatal(err)
		}
		if err := evaluate.Annotations(c, f); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.rules, err, test.want)
		}
	}
}
