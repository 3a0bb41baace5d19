package cloudhypervisor_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/vmtest"
)

// plugCase is a device that comes or goes.
type plugCase struct {
	name, yaml string
	network    bool
	index      int
	taps       []int
	// folders in which disks may be opened; nil: /images.
	folders    []string
	noLandlock bool
	// segments that the VM was made with; empty: its manifest doesn't say.
	segments string
	detach   bool
	// want are words of the fault; nil: the plan is golden.
	want []string
}

func plugCases() []plugCase {
	const qcow2 = "disks: [{path: /images/a.img, slot: 1}, {path: /images/b.qcow2, format: qcow2, cache: writeback, name: data, serial: B, backingFiles: [{path: /images/base.img}]}]\n"
	return []plugCase{
		{name: "disk", yaml: "disks: [{path: /images/a.img, slot: 0}, {path: /images/b.img}]\n", index: 1},
		{name: "chain", yaml: qcow2, index: 1},
		{name: "own-slot", yaml: "disks: [{path: /images/b.img, readOnly: true, slot: 7}]\n"},
		{name: "second-segment", yaml: "disks:" + vmtest.ManyDisks(8) + "- {path: /images/b.img}\n", index: 8, segments: "2"},
		{name: "no-fence", yaml: "disks: [{path: /elsewhere/b.img}]\n", folders: []string{}, noLandlock: true},
		{name: "tap", yaml: "networks: [{tap: {device: t0}, slot: 1}, {tap: {device: t1}, mac: '52:54:00:aa:bb:cc'}]\n", network: true, index: 1, taps: []int{-1, 0}},
		{name: "detach", yaml: qcow2, index: 1, detach: true},
		{name: "detach-read-only", yaml: "disks: [{path: /images/a.img, slot: 63, readOnly: true}]\n", detach: true},
		{name: "detach-network", yaml: "networks: [{tap: {device: t0}, slot: 2}]\n", network: true, detach: true},

		{name: "full", yaml: "disks:" + vmtest.ManyDisks(8) + "- {path: /images/b.img}\n", index: 8, segments: "1", want: []string{"disks[8]", "all 8 places", "stop the VM"}},
		{name: "no-place", yaml: "disks: [{path: /images/b.img, slot: 8}]\n", segments: "1", want: []string{"disks[0].slot", "0 to 7"}},
		{name: "qemus-slot", yaml: "disks: [{path: /images/b.img, slot: 64}]\n", segments: "96", want: []string{"disks[0].slot", "0 to 63"}},
		{name: "outside", yaml: "disks: [{path: /imagesque/b.img}]\n", want: []string{"disks[0].path", "/imagesque/b.img", "hotplugFolders", "(/images)"}},
		{name: "dots", yaml: "disks: [{path: /images/../etc/b.img}]\n", want: []string{"disks[0].path", "not clean"}},
		{name: "no-folders", yaml: "disks: [{path: /images/b.img}]\n", folders: []string{}, want: []string{"disks[0].path", "hotplugFolders"}},
		{name: "backing-outside", yaml: "disks: [{path: /images/b.qcow2, format: qcow2, backingFiles: [{path: /base.img}]}]\n", want: []string{"disks[0].backingFiles[0].path", "/base.img"}},
		{name: "bus", yaml: "disks: [{path: /images/b.img, bus: scsi}]\n", want: []string{"disks[0].bus"}},
		{name: "user-network", yaml: "networks: [{user: {}}]\n", network: true, want: []string{"networks[0].user"}},
		{name: "no-tap", yaml: "networks: [{tap: {}}]\n", network: true, taps: []int{-1}, want: []string{"networks[0].tap"}},
		{name: "network-slot", yaml: "networks: [{tap: {}, slot: 16}]\n", network: true, taps: []int{0}, want: []string{"networks[0].slot", "0 to 15"}},
		{name: "invalid", yaml: "disks: [{path: a}]\n", want: []string{"disks[0].path"}},
	}
}

func (c plugCase) request(t *testing.T) vmm.PlugRequest {
	t.Helper()
	r := vmm.PlugRequest{PlanRequest: vmtest.Case{YAML: vmtest.KernelBoot + c.yaml}.Request(t), Manifest: vmtest.Image(false).Manifest, Network: c.network, Index: c.index}
	r.Manifest.VMM.Extra = map[string]string{"pci-segments": c.segments}
	r.Seed, r.Taps, r.HotplugFolders = -1, c.taps, []string{"/images"}
	if c.folders != nil {
		r.HotplugFolders = c.folders
	}
	r.Info.Details.(*cloudhypervisor.Details).Landlock = !c.noLandlock
	if !c.network && !c.detach && !strings.Contains(c.yaml, fmt.Sprintf("slot: %d}]", r.Spec.Disks[c.index].GetSlot())) {
		spec.FixSlots(r.Spec)            // as the agent does
		r.Spec.Disks[c.index].Slot = nil // its own to choose; defaults give it one beside others
	}
	return r
}

// TestPlugGolden compares what is attached and detached with testdata/plug-CASE.json.
func TestPlugGolden(t *testing.T) {
	p := cloudhypervisor.CloudHypervisor{}
	for _, c := range plugCases() {
		t.Run(c.name, func(t *testing.T) {
			plan := func(r vmm.PlugRequest) (any, error) { return p.PlanAttach(r) }
			if c.detach {
				plan = func(r vmm.PlugRequest) (any, error) { return p.PlanDetach(r) }
			}
			r := c.request(t)
			before, err := spec.Marshal(r.Spec)
			if err != nil {
				t.Fatal(err)
			}
			got, err := plan(r)
			if after, _ := spec.Marshal(r.Spec); string(after) != string(before) {
				t.Errorf("the specification was changed to\n%s", after)
			}
			if c.want != nil {
				for _, word := range c.want {
					if err == nil || !strings.Contains(err.Error(), word) {
						t.Errorf("the error is %v, want %q in it", err, word)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.MarshalIndent(got, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			vmtest.Compare(t, *update, filepath.Join("testdata", "plug-"+c.name+".json"), string(text)+"\n")
		})
	}
}

// TestSlotsRefused: places that there are not.
func TestSlotsRefused(t *testing.T) {
	for yaml, field := range map[string]string{
		"disks: [{path: /a, slot: 64}]\n":   "disks[0].slot",
		"networks: [{tap: {}, slot: 16}]\n": "networks[0].slot",
	} {
		r := vmtest.Case{YAML: vmtest.KernelBoot + yaml, Change: vmtest.Taps(0)}.Request(t)
		if _, err := vmtest.Plan(r); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v, want a fault in %s", yaml, err, field)
		}
	}
}

// TestPlacesAfterDetach: a VM that is restored has what is left of it where it was, and
// as many segments, whatever has gone.
func TestPlacesAfterDetach(t *testing.T) {
	places := func(r vmm.PlanRequest) map[string]string {
		p, err := vmtest.Plan(r)
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, p)
		out := map[string]string{"segments": fmt.Sprint(p.VM.Config.Platform.PCISegments)}
		for _, pci := range vmtest.DevicesOf(p) {
			out[pci.ID] = fmt.Sprintf("%d:%d", pci.Segment, *pci.Slot)
		}
		return out
	}
	boot := vmtest.Case{YAML: vmtest.KernelBoot + "disks:" + vmtest.ManyDisks(40) + "networks: [{tap: {}}, {tap: {}}]\n", Change: vmtest.Taps(0, 1)}.Request(t)
	manifest, err := new(cloudhypervisor.CloudHypervisor).Manifest(boot)
	if err != nil {
		t.Fatal(err)
	}
	before := places(boot)
	again := vmtest.Case{YAML: vmtest.KernelBoot + "disks: [{path: /x, slot: 1}, {path: /y, slot: 35}]\nnetworks: [{tap: {}, slot: 1}]\n", Change: vmtest.Taps(0)}.Request(t)
	for _, kept := range [][]int{{0, 1}, {0}, {}} {
		r := again
		r.Spec = vmtest.Complete(t, vmtest.KernelBoot+"networks: [{tap: {}, slot: 1}]\n", spec.ArchAMD64, spec.HypervisorKVM)
		for _, i := range kept {
			r.Spec.Disks = append(r.Spec.Disks, again.Spec.Disks[i])
		}
		r.Image = vmtest.Image(false)
		r.Image.Manifest.VMM.Extra = manifest.VMM.Extra
		for id, place := range places(r) {
			if before[id] != place {
				t.Errorf("with disks %v: %s is at %s, and was at %q", kept, id, place, before[id])
			}
		}
		after, err := new(cloudhypervisor.CloudHypervisor).Manifest(r)
		if err != nil || after.VMM.Extra["pci-segments"] != manifest.VMM.Extra["pci-segments"] {
			t.Errorf("the next image has %v, %v", after.VMM.Extra, err)
		}
	}
}

// TestRoomForMore: there is a place for a disk more than a VM was started with.
func TestRoomForMore(t *testing.T) {
	for n := range spec.MaxDisks {
		r := vmtest.Case{YAML: vmtest.KernelBoot + "disks:" + vmtest.ManyDisks(n+1)}.Request(t)
		launch := r
		launch.Spec = vmtest.Complete(t, vmtest.KernelBoot+"disks:"+vmtest.ManyDisks(n), spec.ArchAMD64, spec.HypervisorKVM)
		if n == 0 {
			launch.Spec.Disks = nil
		}
		manifest, err := new(cloudhypervisor.CloudHypervisor).Manifest(launch)
		if err != nil {
			t.Fatal(err)
		}
		spec.FixSlots(r.Spec)
		r.Spec.Disks[n].Slot = nil
		r.HotplugFolders = []string{"/"}
		if _, err := new(cloudhypervisor.CloudHypervisor).PlanAttach(vmm.PlugRequest{PlanRequest: r, Manifest: &manifest, Index: n}); err != nil {
			t.Errorf("beside %d: %v", n, err)
		}
	}
}
