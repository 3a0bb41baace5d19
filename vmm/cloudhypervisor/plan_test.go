package cloudhypervisor_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/vmtest"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// TestGolden compares each plan with testdata/CASE.json, and makes it twice:
// nothing may depend on a map's order.
func TestGolden(t *testing.T) {
	for _, c := range vmtest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			p, err := vmtest.Plan(c.Request(t))
			if err != nil {
				t.Fatal(err)
			}
			checkPlan(t, p)
			text := vmtest.Render(t, p)
			vmtest.Compare(t, *update, filepath.Join("testdata", c.Name+".json"), text)
			again, err := vmtest.Plan(c.Request(t))
			if err != nil {
				t.Fatal(err)
			}
			if vmtest.Render(t, again) != text {
				t.Error("two plans of one request differ")
			}
		})
	}
}

// descriptor is how a file of the plan's is spoken of.
var descriptor = regexp.MustCompile(`/proc/self/fd/([0-9]+)`)

// checkPlan is what holds for every plan.
func checkPlan(t testing.TB, p *vmtest.Planned) {
	t.Helper()
	body, err := json.Marshal(&p.VM.Config)
	if err != nil {
		t.Fatal(err)
	}
	if len(body) > chapi.MaxBody {
		t.Errorf("the configuration has %d bytes", len(body))
	}
	for _, match := range descriptor.FindAllStringSubmatch(string(body), -1) {
		if n, err := strconv.Atoi(match[1]); err != nil || n < plan.FirstFile || n >= plan.FirstFile+len(p.Files) {
			t.Errorf("%s is none of the %d files", match[0], len(p.Files))
		}
	}
	ids, slots := map[string]bool{}, map[[2]int]bool{}
	for _, pci := range vmtest.DevicesOf(p) {
		place := [2]int{int(pci.Segment), int(*pci.Slot)}
		if pci.ID != "" && ids[pci.ID] || slots[place] || place[1] < 1 || place[1] > 31 || place[0] == 0 && place[1] < 3 {
			t.Errorf("%+v (slot %d) is listed twice or out of place", pci, place[1])
		}
		ids[pci.ID], slots[place] = true, true
		if pci.Segment >= p.VM.Config.Platform.PCISegments {
			t.Errorf("%s is on PCI segment %d of %d", pci.ID, pci.Segment, p.VM.Config.Platform.PCISegments)
		}
	}
	for _, d := range p.VM.Config.Disks {
		if d.Type == "" {
			t.Errorf("%s: the VMM would guess its format", d.ID)
		}
	}
	if c := p.VM.Config.CPUs; uint32(c.Topology.ThreadsPerCore)*uint32(c.Topology.CoresPerDie)*uint32(c.Topology.Packages) != c.Max || c.Boot == 0 {
		t.Errorf("a topology of %+v for %d vCPUs", *c.Topology, c.Max)
	}
	for _, f := range p.Files {
		foreign := f.Kind == plan.FilePath || f.Kind == plan.FileReceived
		if foreign && !f.Granted && !f.Reopened || f.Write && f.Reopened || f.Named != f.Reopened || f.ByName && !f.Granted || f.Granted && f.Reopened {
			t.Errorf("what is done to make it readable: %+v", f)
		}
	}
}

// TestFaults compares all that is wrong with a specification with
// testdata/faults-CASE.txt.
func TestFaults(t *testing.T) {
	longPath := "/images/" + strings.Repeat("x", 3000)
	chain := ""
	for i := range 20 {
		chain += fmt.Sprintf("{path: %s%d, format: qcow2}, ", longPath, i)
	}
	for _, c := range []vmtest.Case{
		{Name: "all", Hypervisor: "emulation", YAML: `
vmm: qemu
machineType: pc
cpu: {model: Nehalem, threads: 4, features: [{name: avx2}, {name: nested}, {name: kvm_hyperv}]}
boot: {firmware: bios}
disks:
- {path: /images/a.iso, type: cdrom}
- {path: /images/b.img, bus: scsi, cache: writethrough, bootOrder: 2}
- {path: /images/c.img, bus: sata, cache: unsafe, bootOrder: 1}
- {path: /images/d.img, bus: usb}
- {path: /images/e.img, bootOrder: 3}
cloudInit: {userData: "#cloud-config"}
networks: [{user: {}}, {model: e1000e, tap: {bridge: br0}}, {}]
devices: {guestAgent: true, entropy: false, watchdog: {model: itco, action: pause}}
`, Change: func(r *vmm.PlanRequest) { r.Seed = -1 }},
		{Name: "invalid", YAML: "cpu: {sockets: 2000}\nmemory: {size: 1}\n"},
		{Name: "program", YAML: vmtest.KernelBoot, Change: func(r *vmm.PlanRequest) {
			r.Info.Details.(*cloudhypervisor.Details).Features = []string{cloudhypervisor.FeatureLandlock}
		}},
		{Name: "firmware", YAML: "", Change: func(r *vmm.PlanRequest) { r.Info.Details.(*cloudhypervisor.Details).Firmware = "" }},
		{Name: "arm64", Arch: spec.ArchARM64, YAML: vmtest.KernelBoot + "cpu: {threads: 4, features: [{name: amx}]}\n"},
		{Name: "mshv", Hypervisor: "mshv", YAML: vmtest.KernelBoot + "cpu: {features: [{name: kvm_hyperv}]}\n"},
		{Name: "lazy-huge-pages", YAML: vmtest.KernelBoot + "memory: {hugePages: {pageSize: 2Mi}}\n", Change: func(r *vmm.PlanRequest) { r.Image = vmtest.Image(true) }},
		{Name: "numa", YAML: vmtest.KernelBoot + "cpu: {cores: 2}\nmemory: {size: 3Gi}\n" +
			"numa: {nodes: [{cpus: '0', memory: 1Gi, hostNodes: '0'}, {cpus: '1', memory: 2Gi}]}\n",
			Change: func(r *vmm.PlanRequest) { r.Image = vmtest.Image(true) }},
		{Name: "pod-networks", YAML: vmtest.KernelBoot + "networks: [{pod: {linkDown: true}}, {pod: {binding: bridge, interface: net1, queues: 2}}]\n", Change: vmtest.Taps(0, 1)},
		{Name: "host-devices", YAML: vmtest.KernelBoot + "hostDevices: [{pciAddress: '0000:01:00.0'}]\ndevices: {balloon: true, tpm: {socket: /a, model: tpm-tis}}\n",
			Change: func(r *vmm.PlanRequest) { r.Image = vmtest.Image(false) }},
		{Name: "accelerator", YAML: vmtest.KernelBoot, Change: func(r *vmm.PlanRequest) {
			r.Info.Details.(*cloudhypervisor.Details).Accelerators["kvm"] = "/dev/kvm: Permission denied"
		}},
		{Name: "other-image", YAML: vmtest.KernelBoot, Change: func(r *vmm.PlanRequest) {
			r.Image = vmtest.Image(false)
			r.Image.Manifest.VMM.Name = "qemu"
		}},
		{Name: "no-manifest", YAML: vmtest.KernelBoot, Change: func(r *vmm.PlanRequest) {
			r.Image = vmtest.Image(false)
			r.Image.Manifest = nil
		}},
		{Name: "too-long", YAML: vmtest.KernelBoot + "disks: [{path: /images/a, format: qcow2, backingFiles: [" + chain + "]}]\n"},
	} {
		t.Run(c.Name, func(t *testing.T) {
			_, err := vmtest.Plan(c.Request(t))
			var faults spec.FieldErrors
			if !errors.As(err, &faults) {
				t.Fatalf("%T: %v", err, err)
			}
			vmtest.Compare(t, *update, filepath.Join("testdata", "faults-"+c.Name+".txt"), faults.Error()+"\n")
		})
	}
}

func TestOtherDetails(t *testing.T) {
	for _, details := range []any{nil, "text", (*cloudhypervisor.Details)(nil)} {
		r := vmtest.Case{YAML: vmtest.Small}.Request(t)
		r.Info.Details = details
		if _, err := vmtest.Plan(r); err == nil || !strings.Contains(err.Error(), "not cloud-hypervisor's") {
			t.Errorf("details %v: %v", details, err)
		}
	}
}

// TestPlacesStay adds to a VM, and wants all that it had where it was.
func TestPlacesStay(t *testing.T) {
	places := func(yaml string, taps ...int) map[string]string {
		p, err := vmtest.Plan(vmtest.Case{YAML: vmtest.KernelBoot + yaml, Change: func(r *vmm.PlanRequest) { r.Taps = taps }}.Request(t))
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, p)
		out := map[string]string{}
		for _, pci := range vmtest.DevicesOf(p) {
			out[pci.ID] = fmt.Sprintf("%d:%d", pci.Segment, *pci.Slot)
		}
		return out
	}
	before := places("disks: [{path: /images/zz.img}]\nnetworks: [{tap: {}}]\n", 0)
	after := places("disks:"+vmtest.ManyDisks(64)+"networks: [{tap: {}}, {tap: {}}]\ncloudInit: {userData: x}\ndevices: {vsock: {cid: 5}}\n", 0, 1)
	for id, place := range before {
		if after[id] != place {
			t.Errorf("%s has moved from %s to %s", id, place, after[id])
		}
	}
}
