package cloudhypervisor

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chvm"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// TestGolden compares each plan with testdata/CASE.json, and makes it twice:
// nothing may depend on a map's order.
func TestGolden(t *testing.T) {
	for _, c := range planCases() {
		t.Run(c.name, func(t *testing.T) {
			p, err := planVM(c.request(t))
			if err != nil {
				t.Fatal(err)
			}
			checkPlan(t, p)
			text := render(t, p)
			compareGolden(t, filepath.Join("testdata", c.name+".json"), text)
			again, err := planVM(c.request(t))
			if err != nil {
				t.Fatal(err)
			}
			if render(t, again) != text {
				t.Error("two plans of one request differ")
			}
		})
	}
}

// planned is a plan, and its instructions as they are read again.
type planned struct {
	*plan.Plan
	vm chvm.VM
}

func planVM(r vmm.PlanRequest) (*planned, error) {
	p, err := New(Config{}).Plan(r)
	if err != nil {
		return nil, err
	}
	out := &planned{Plan: p}
	return out, json.Unmarshal(p.Instructions, &out.vm)
}

func render(t *testing.T, p *planned) string {
	t.Helper()
	text, err := json.MarshalIndent(p.Plan, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: make it with -update and read it", err)
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		if i >= len(gotLines) || i >= len(wantLines) || gotLines[i] != wantLines[i] {
			t.Fatalf("%s:%d:\n got %q\nwant %q", path, i+1, gotLines[min(i, len(gotLines)-1)], wantLines[min(i, len(wantLines)-1)])
		}
	}
}

// descriptor is how a file of the plan's is spoken of.
var descriptor = regexp.MustCompile(`/proc/self/fd/([0-9]+)`)

// checkPlan is what holds for every plan.
func checkPlan(t testing.TB, p *planned) {
	t.Helper()
	body, err := json.Marshal(&p.vm.Config)
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
	for _, pci := range devicesOf(p) {
		place := [2]int{int(pci.Segment), int(*pci.Slot)}
		if pci.ID != "" && ids[pci.ID] || slots[place] || place[1] < 1 || place[1] > 31 || place[0] == 0 && place[1] < 3 {
			t.Errorf("%+v (slot %d) is there twice or out of place", pci, place[1])
		}
		ids[pci.ID], slots[place] = true, true
		if pci.Segment >= p.vm.Config.Platform.PCISegments {
			t.Errorf("%s is on PCI segment %d of %d", pci.ID, pci.Segment, p.vm.Config.Platform.PCISegments)
		}
	}
	for _, d := range p.vm.Config.Disks {
		if d.Type == "" {
			t.Errorf("%s: the VMM would guess its format", d.ID)
		}
	}
	if c := p.vm.Config.CPUs; uint32(c.Topology.ThreadsPerCore)*uint32(c.Topology.CoresPerDie)*uint32(c.Topology.Packages) != c.Max || c.Boot == 0 {
		t.Errorf("a topology of %+v for %d vCPUs", *c.Topology, c.Max)
	}
	for _, f := range p.Files {
		foreign := f.Kind == plan.FilePath || f.Kind == plan.FileReceived
		if foreign && !f.Granted && !f.Reopened || f.Write && f.Reopened || f.Named != f.Reopened || f.ByName && !f.Granted || f.Granted && f.Reopened {
			t.Errorf("what is done to make it readable: %+v", f)
		}
	}
}

func devicesOf(p *planned) []chapi.PCI {
	out := []chapi.PCI{p.vm.Config.RNG.PCI}
	if p.vm.Config.Balloon != nil {
		out = append(out, p.vm.Config.Balloon.PCI)
	}
	if p.vm.Config.Vsock != nil {
		out = append(out, p.vm.Config.Vsock.PCI)
	}
	for _, d := range p.vm.Config.Disks {
		out = append(out, d.PCI)
	}
	for _, add := range p.vm.Add {
		out = append(out, add.Net.PCI)
	}
	for _, host := range p.vm.Devices {
		out = append(out, host.PCI)
	}
	return out
}

// TestFaults compares all that is wrong with a specification with
// testdata/faults-CASE.txt.
func TestFaults(t *testing.T) {
	longPath := "/images/" + strings.Repeat("x", 3000)
	chain := ""
	for i := range 20 {
		chain += fmt.Sprintf("{path: %s%d, format: qcow2}, ", longPath, i)
	}
	for _, c := range []planCase{
		{name: "all", hypervisor: "emulation", yaml: `
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
`, change: func(r *vmm.PlanRequest) { r.Seed = -1 }},
		{name: "invalid", yaml: "cpu: {sockets: 2000}\nmemory: {size: 1}\n"},
		{name: "program", yaml: kernelBoot, change: func(r *vmm.PlanRequest) { r.Info.Details.(*Details).Features = []string{FeatureLandlock} }},
		{name: "firmware", yaml: "", change: func(r *vmm.PlanRequest) { r.Info.Details.(*Details).Firmware = "" }},
		{name: "arm64", arch: spec.ArchARM64, yaml: kernelBoot + "cpu: {threads: 4, features: [{name: amx}]}\n"},
		{name: "mshv", hypervisor: "mshv", yaml: kernelBoot + "cpu: {features: [{name: kvm_hyperv}]}\n"},
		{name: "lazy-huge-pages", yaml: kernelBoot + "memory: {hugePages: {pageSize: 2Mi}}\n", change: func(r *vmm.PlanRequest) { r.Image = testImage(true) }},
		{name: "numa", yaml: kernelBoot + "cpu: {cores: 2}\nmemory: {size: 3Gi}\n" +
			"numa: {nodes: [{cpus: '0', memory: 1Gi, hostNodes: '0'}, {cpus: '1', memory: 2Gi}]}\n",
			change: func(r *vmm.PlanRequest) { r.Image = testImage(true) }},
		{name: "host-devices", yaml: kernelBoot + "hostDevices: [{pciAddress: '0000:01:00.0'}]\ndevices: {balloon: true, tpm: {socket: /a, model: tpm-tis}}\n",
			change: func(r *vmm.PlanRequest) { r.Image = testImage(false) }},
		{name: "accelerator", yaml: kernelBoot, change: func(r *vmm.PlanRequest) {
			r.Info.Details.(*Details).Accelerators["kvm"] = "/dev/kvm: Permission denied"
		}},
		{name: "other-image", yaml: kernelBoot, change: func(r *vmm.PlanRequest) {
			r.Image = testImage(false)
			r.Image.Manifest.VMM.Name = "qemu"
		}},
		{name: "no-manifest", yaml: kernelBoot, change: func(r *vmm.PlanRequest) {
			r.Image = testImage(false)
			r.Image.Manifest = nil
		}},
		{name: "too-long", yaml: kernelBoot + "disks: [{path: /images/a, format: qcow2, backingFiles: [" + chain + "]}]\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := planVM(c.request(t))
			var faults spec.FieldErrors
			if !errors.As(err, &faults) {
				t.Fatalf("%T: %v", err, err)
			}
			compareGolden(t, filepath.Join("testdata", "faults-"+c.name+".txt"), faults.Error()+"\n")
		})
	}
}

func TestOtherDetails(t *testing.T) {
	for _, details := range []any{nil, "text", (*Details)(nil)} {
		r := planCase{yaml: small}.request(t)
		r.Info.Details = details
		if _, err := planVM(r); err == nil || !strings.Contains(err.Error(), "not cloud-hypervisor's") {
			t.Errorf("details %v: %v", details, err)
		}
	}
}

// TestPlacesStay adds to a VM, and wants all that it had where it was.
func TestPlacesStay(t *testing.T) {
	places := func(yaml string, taps ...int) map[string]string {
		p, err := planVM(planCase{yaml: kernelBoot + yaml, change: func(r *vmm.PlanRequest) { r.Taps = taps }}.request(t))
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, p)
		out := map[string]string{}
		for _, pci := range devicesOf(p) {
			out[pci.ID] = fmt.Sprintf("%d:%d", pci.Segment, *pci.Slot)
		}
		return out
	}
	before := places("disks: [{path: /images/zz.img}]\nnetworks: [{tap: {}}]\n", 0)
	after := places("disks:"+manyDisks(64)+"networks: [{tap: {}}, {tap: {}}]\ncloudInit: {userData: x}\ndevices: {vsock: {cid: 5}}\n", 0, 1)
	for id, place := range before {
		if after[id] != place {
			t.Errorf("%s has moved from %s to %s", id, place, after[id])
		}
	}
}
