package probe

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/swtpm"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/vmtest"
)

// realCases are those that need neither taps, nor firmware, nor devices of the host.
func realCases() []vmtest.Case {
	names := []string{"default", "minimal", "small", "max-vcpus", "numa", "tpm", "many-disks", "no-landlock"}
	cases := slices.DeleteFunc(vmtest.Cases(), func(c vmtest.Case) bool { return !slices.Contains(names, c.Name) })
	return append(cases, vmtest.Case{Name: "devices", YAML: vmtest.KernelBoot + `
cpu: {sockets: 2, threads: 2, features: [{name: nested, policy: disable}]}
disks: [{path: /images/root.img, serial: "S 1"}, {path: /images/tools.img, readOnly: true, cache: writeback}]
cloudInit: {userData: "#cloud-config"}
devices: {vsock: {cid: 42}, watchdog: {}, balloon: true, entropy: true}
`})
}

// TestRealBoots carries plans out with this machine's cloud-hypervisor.
func TestRealBoots(t *testing.T) {
	program, err := exec.LookPath("cloud-hypervisor")
	if err != nil {
		t.Skipf("not with a real cloud-hypervisor: %v", err)
	}
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	kvm.Close()
	kernel, err := guest.PVH(guest.PVHOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range realCases() {
		t.Run(c.Name, func(t *testing.T) {
			ctx, h := standInContext(t), newHost(t, program)
			r := c.Request(t)
			r.Info.Details.(*cloudhypervisor.Details).Landlock = landlockVersion() >= landlockWanted && r.Info.Details.(*cloudhypervisor.Details).Landlock
			p, err := vmtest.Plan(r)
			h.must(err)
			h.furnish(p, kernel)
			client := h.start(p)
			h.boot(ctx, client, p)
			h.check(ctx, client, p)
			h.console(p)
		})
	}
}

// furnish puts in place what a real guest needs: what is there the host leaves.
func (h *host) furnish(p *vmtest.Planned, kernel []byte) {
	h.t.Helper()
	for _, f := range p.Files {
		switch {
		case f.Field == "boot.kernel.path":
			h.content(h.path(f.Path), string(kernel), int64(len(kernel)))
		case f.Kind == plan.FileSocket:
			h.must(os.MkdirAll(h.path("run"), 0o700))
			h.must(os.Symlink(swtpm.Start(h.t), h.path(f.Path)))
		}
	}
}

// TestSavesThatAreRefused: what a snapshot has no state of.
func TestSavesThatAreRefused(t *testing.T) {
	for yaml, refused := range map[string]bool{
		vmtest.KernelBoot: false,
		vmtest.KernelBoot + "devices: {tpm: {socket: /run/tpm}}":                             true,
		vmtest.KernelBoot + "hostDevices: [{pciAddress: '0000:01:00.0'}]":                    true,
		vmtest.KernelBoot + "devices: {watchdog: {}}\ncpu: {maxVcpus: 4}\n":                  false,
		vmtest.KernelBoot + "memory: {size: 1Gi}\nnuma: {nodes: [{cpus: '0', memory: 1Gi}]}": false,
	} {
		s := vmtest.Case{YAML: yaml}.Request(t).Spec
		if err := vmm.Saveable(New(Config{}), s).Err(); (err != nil) != refused {
			t.Errorf("%s: %v", yaml, err)
		}
	}
}
