package deploy

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	hypervisors "github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/overhead"
	vmms "github.com/vmlet/vmlet/vmm/standard"
)

// The RuntimeClass's overhead is what the VM that its comment names costs.
func TestRuntimeClassOverhead(t *testing.T) {
	s, err := spec.Parse([]byte(`
cpu: {cores: 4}
memory: {size: 4Gi}
boot: {firmware: uefi}
disks: [{name: root, path: /disks/root.qcow2, format: qcow2}]
networks: [{user: {}}]
cloudInit: {userData: "#cloud-config"}
`), "vm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	known := hypervisors.Registry()
	kvm, _ := known.Get("kvm")
	qemu, _ := vmms.Registry().Get("qemu")
	target := spec.Target{ID: "overhead", Hypervisor: "kvm", VMM: "qemu", Arch: spec.ArchAMD64, Defaults: vmm.DefaultsOf(qemu, spec.ArchAMD64)}
	b, err := overhead.Of(overhead.Request{
		Spec: spec.Default(s, target, known.Layers()), Hypervisor: kvm, VMM: qemu, Arch: spec.ArchAMD64, Ratio: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../autopilot/catalog/assets/active/scheduling/runtime-class.yaml.tpl")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^ +memory: (\d+)Mi$`).FindSubmatch(text)
	if found == nil {
		t.Fatal("the RuntimeClass has no overhead of memory")
	}
	if got, want := string(found[1]), strconv.FormatUint(b.Total>>20, 10); got != want {
		t.Errorf("the RuntimeClass has an overhead of %s MiB, and vmlet overhead says %s", got, want)
	}
}
