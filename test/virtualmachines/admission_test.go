package virtualmachines_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// testAdmission: what can't be had is refused by its path, all of it at once, for both kinds
// alike; kubectl's words are in testdata.
func (v *installed) testAdmission(t *testing.T) {
	var out strings.Builder
	for _, c := range []struct{ title, manifest string }{
		{"a VM", virtualMachine("refused", unsupported)},
		{"an instance", "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: refused, namespace: guests}\nspec: " + unsupported},
		{"a field that does not exist", virtualMachine("refused", "{domain: {devices: {}, memory: {gest: 1Gi}}}")},
		{"values of wrong types", virtualMachine("refused", `{domain: {cpu: {cores: "2", sockets: true}, devices: {}, memory: {guest: 4GB}}, hostname: 7}`)},
		{"two run strategies", "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: refused, namespace: guests}\nspec: {running: true, runStrategy: Always, template: {spec: {domain: {devices: {}}}}}"},
	} {
		err := v.Apply(v.ctx, c.manifest)
		if err == nil {
			t.Errorf("%s is accepted:\n%s", c.title, c.manifest)
			continue
		}
		_, said, _ := strings.Cut(err.Error(), "exit status 1: ")
		fmt.Fprintf(&out, "# %s\n%s\n\n", c.title, said)
	}
	must(t, v.Apply(v.ctx, virtualMachine("warned", accepted)))
	warned := v.kubectl(t, "get", "vm", "warned", "-n", guests, "-o", "jsonpath={.spec.template.spec.domain.firmware.uuid} {.metadata.finalizers}")
	if uuid, finalizers, _ := strings.Cut(warned, " "); uuid == "" || !strings.Contains(finalizers, "virtualMachineControllerFinalize") {
		t.Errorf("admission gave the VM the UUID %q and the finalizers %s", uuid, finalizers)
	}
	golden(t, "refused.txt", out.String())
	for name, spec := range map[string]string{"nothing": "{}", "no devices": "{domain: {}}", "a fraction": "{domain: {resources: {requests: {cpu: 0.5, memory: 64Mi}}}}"} {
		if err := v.Apply(v.ctx, virtualMachine("warned", spec)); err != nil {
			t.Errorf("a template with %s is refused: %v", name, err)
		}
	}
	v.remove(t, machine(t, "warned", "", idle))
	v.testWarnings(t)
}

// testWarnings: what is accepted and should not be written any more.
func (v *installed) testWarnings(t *testing.T) {
	var said warnings
	vm, no := machine(t, "old", "", idle), false
	vm.Spec.RunStrategy, *runningOf(vm) = nil, &no
	must(t, connect(t, v.Cluster, &said).Create(v.ctx, vm, client.DryRunAll))
	if len(said) != 1 || !strings.HasPrefix(said[0], "spec.running is deprecated: use spec.runStrategy") {
		t.Errorf("of the field running the warnings are %q", said)
	}
}

// warnings keeps what the API server warns of.
type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) { *w = append(*w, text) }

func virtualMachine(name, spec string) string {
	return fmt.Sprintf("apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: %s, namespace: guests}\nspec: {runStrategy: Halted, template: {spec: %s}}\n", name, spec)
}

const accepted = "{domain: {devices: {}, memory: {guest: 64Mi}}}"

// unsupported has a field of each kind that is not supported, and a mistake.
const unsupported = `{
  domain: {
    devices: {
      gpus: [{name: gpu, deviceName: example.com/gpu}],
      disks: [{name: root, disk: {bus: virtio}}, {name: missing, disk: {bus: virtio}}],
      interfaces: [{name: default, sriov: {}}]
    },
    memory: {guest: 64Mi},
    firmware: {bootloader: {efi: {secureBoot: true}}}
  },
  networks: [{name: default, multus: {networkName: other}}],
  volumes: [{name: root, containerDisk: {image: i}}]
}`

// testEviction: a VM is evicted or not as its strategy says.
func (v *installed) testEviction(t *testing.T) {
	none, live, external := kubevirtv1.EvictionNone, kubevirtv1.EvictionLiveMigrate, kubevirtv1.EvictionExternal
	for name, strategy := range map[string]*kubevirtv1.EvictionStrategy{"evicted": &none, "kept": &live, "outside": &external} {
		vm := machine(t, name, kubevirtv1.RunStrategyAlways, idle)
		vm.Spec.Template.Spec.EvictionStrategy = strategy
		v.create(t, vm)
	}
	for name, c := range map[string]struct {
		message string
		noted   bool // in evacuationNodeName
	}{
		"kept":    {"VMI kept is configured with an eviction strategy but is not live-migratable", false},
		"outside": {"Eviction triggered evacuation of VMI " + guests + "/outside", true},
	} {
		vmi := v.phase(t, name, kubevirtv1.PhaseRunning)
		err := v.evict(t, vmi)
		if err == nil || !strings.Contains(err.Error(), c.message) || !strings.Contains(err.Error(), "TooManyRequests") {
			t.Errorf("an eviction of VM %s: %v, want 429 and %q", name, err, c.message)
		}
		if node := v.vmi(t, name).Status.EvacuationNodeName; (node == vmi.Status.NodeName) != c.noted {
			t.Errorf("evacuationNodeName of VM %s on node %s is %q", name, vmi.Status.NodeName, node)
		}
	}
	vmi := v.phase(t, "evicted", kubevirtv1.PhaseRunning)
	must(t, v.evict(t, vmi))
	v.another(t, vmi)
	for _, name := range []string{"evicted", "kept", "outside"} {
		v.remove(t, machine(t, name, "", idle))
	}
}

// evict asks for the eviction of an instance's pod, as kubectl drain does.
func (v *installed) evict(t *testing.T, vmi *kubevirtv1.VirtualMachineInstance) error {
	t.Helper()
	pod := v.podOf(t, vmi)
	file := filepath.Join(t.TempDir(), "eviction.json")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}}`, pod.Name, pod.Namespace), 0o600))
	_, err := v.Kubectl(v.ctx, "create", "-f", file, "--raw", "/api/v1/namespaces/"+pod.Namespace+"/pods/"+pod.Name+"/eviction")
	return err
}

// testAdmissionAway: without vmlet-api VMs go on, end and are evicted; none is accepted that
// nobody has looked at, and the refusal says who is missing.
func (v *installed) testAdmissionAway(t *testing.T) {
	live := kubevirtv1.EvictionLiveMigrate
	vm := machine(t, "unguarded", kubevirtv1.RunStrategyAlways, idle)
	vm.Spec.Template.Spec.EvictionStrategy = &live
	v.create(t, vm)
	vmi := v.phase(t, "unguarded", kubevirtv1.PhaseRunning)
	v.printed(t, "unguarded", kubevirtv1.StatusRunning)
	v.kubectl(t, "scale", "deployment/vmlet-api", "-n", "vmlet", "--replicas=0")
	v.kubectl(t, "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=vmlet-api", "-n", "vmlet", "--timeout=24h")
	if err := v.Apply(v.ctx, virtualMachine("unseen", accepted)); err == nil || !strings.Contains(err.Error(), "https://vmlet-api.vmlet.svc") {
		t.Errorf("a VM without vmlet-api: %v, want a refusal that says who did not answer", err)
	}
	must(t, v.evict(t, vmi))
	v.kubectl(t, "delete", "vm", "unguarded", "-n", guests, "--timeout=24h")
	v.kubectl(t, "scale", "deployment/vmlet-api", "-n", "vmlet", "--replicas=2")
	must(t, v.RolledOut(v.ctx, "vmlet", "deployment/vmlet-api"))
}
