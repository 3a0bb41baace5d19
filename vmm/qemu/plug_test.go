package qemu_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu"
	"github.com/vmlet/vmlet/vmm/qemu/qemutest"
)

// plugCase is a device that comes or goes.
type plugCase struct {
	name, yaml string
	network    bool
	index      int
	// boot is the specification at the start; empty: all of yaml but the device.
	boot   string
	taps   []int
	detach bool
	// want are words of the fault; nil: the plan is golden.
	want []string
}

func plugCases() []plugCase {
	const twoDisks = "disks: [{path: /images/a.img, slot: 0}, {path: /images/b.img, slot: 1}]\n"
	return []plugCase{
		{name: "disk", yaml: "disks: [{path: /images/a.img, slot: 0}, {path: /images/b.img, serial: B}]\n", index: 1},
		{name: "chain", yaml: "disks: [{path: /images/b.qcow2, format: qcow2, readOnly: true, backingFiles: [{path: /images/base.img}], name: data, slot: 64}, {path: /dev/vg/x, format: qcow2, backingFiles: [{path: /images/m.qcow2, format: qcow2}, {path: /images/base.img}]}]\n", index: 1},
		{name: "scsi", yaml: "disks: [{path: /images/a.img, bus: scsi, slot: 1}, {path: /images/b.img, bus: scsi}]\n", index: 1, boot: "disks: [{path: /images/a.img, bus: scsi}]\n"},
		{name: "tap", yaml: "networks: [{tap: {device: t0}}]\n", network: true, taps: []int{0}},
		{name: "user-network", yaml: "networks: [{user: {ports: [{hostPort: 18022, guestPort: 22}]}, slot: 65}]\n", network: true},
		{name: "pc", yaml: "machineType: pc\ndisks: [{path: /images/a.img}]\n"},
		{name: "detach", yaml: "disks: [{path: /images/a.img, slot: 0}, {path: /images/b.qcow2, format: qcow2, backingFiles: [{path: /b}], slot: 64}]\n", index: 1, detach: true},
		{name: "detach-scsi", yaml: "disks: [{path: /images/a.img, slot: 3, bus: scsi, readOnly: true}]\n", detach: true},
		{name: "detach-network", yaml: "networks: [{tap: {device: t0}, slot: 65}]\n", network: true, detach: true},
		{name: "detach-pc", yaml: "machineType: pc\n" + twoDisks, index: 1, detach: true},

		{name: "sata", yaml: "disks: [{path: /a, bus: sata}]\n", want: []string{"disks[0].bus", "virtio or scsi", "stop the VM"}},
		{name: "usb", yaml: "disks: [{path: /a, bus: usb}]\n", want: []string{"disks[0].bus"}},
		{name: "no-controller", yaml: "disks: [{path: /a, bus: scsi}]\n", boot: "{}", want: []string{"disks[0].bus", "without a SCSI controller"}},
		{name: "boot-slot", yaml: "disks: [{path: /a, slot: 3}]\n", want: []string{"disks[0].slot", "64 to 67"}},
		{name: "no-room", yaml: "machineType: pc\ndisks: [{path: /a, slot: 64}, {path: /b, slot: 65}, {path: /c}]\n", index: 2, want: []string{"disks[2]", "all 2 places"}},
		{name: "no-tap", yaml: "networks: [{tap: {device: t0}}]\n", network: true, taps: []int{-1}, want: []string{"networks[0].tap"}},
		{name: "microvm", yaml: "machineType: microvm\ndisks: [{path: /a}]\n", want: []string{"disks[0]", "microvm has no PCI"}},
		{name: "microvm-detach", yaml: "machineType: microvm\n" + twoDisks, detach: true, want: []string{"disks[0]", "microvm has no PCI"}},
		{name: "q35-detach", yaml: twoDisks, index: 1, detach: true, want: []string{"disks[1]", "was there when", "stop the VM"}},
		{name: "q35-detach-network", yaml: "networks: [{user: {}, slot: 0}]\n", network: true, detach: true, want: []string{"networks[0]", "was there when"}},
		{name: "shared-slot", yaml: "machineType: pc\ndisks: [{path: /a, slot: 1}, {path: /b, slot: 9}]\n", detach: true, want: []string{"disks[0]", "shares"}},
		{name: "sata-detach", yaml: "disks: [{path: /a, bus: sata, slot: 0}]\n", detach: true, want: []string{"disks[0].bus"}},
		{name: "invalid", yaml: "disks: [{path: a}]\n", want: []string{"disks[0].path"}},
	}
}

// request is the one for a machine that was started with boot.
func (c plugCase) request(t *testing.T, q qemu.QEMU, info vmm.Info) vmm.PlugRequest {
	t.Helper()
	boot := c.boot
	if boot == "" {
		boot = c.yaml
	}
	if boot == "{}" {
		boot = ""
	}
	launch := qemutest.Case{YAML: qemutest.KernelBoot + boot, Change: func(r *vmm.PlanRequest) { r.Taps = []int{0, 0} }}.Request(info)
	if len(c.want) > 0 && c.name == "invalid" {
		launch = qemutest.Case{YAML: qemutest.KernelBoot}.Request(info)
	}
	manifest, err := q.Manifest(launch)
	if err != nil {
		t.Fatal(err)
	}
	r := vmm.PlugRequest{PlanRequest: qemutest.Case{YAML: qemutest.KernelBoot + c.yaml}.Request(info), Manifest: &manifest, Network: c.network, Index: c.index}
	if !c.network && !c.detach && c.name != "boot-slot" {
		r.Spec.Disks[c.index].Slot = nil // its own to choose; defaults give it one beside others
	}
	r.BlockDevices, r.Taps = []string{"/dev/vg/x"}, c.taps
	return r
}

// TestPlugGolden compares what is attached and detached with testdata/plug-CASE.json.
func TestPlugGolden(t *testing.T) {
	q, info := qemu.QEMU{}, qemutest.Fixture(t, "testdata", "7.2")
	for _, c := range plugCases() {
		t.Run(c.name, func(t *testing.T) {
			plan := func(r vmm.PlugRequest) (any, error) { return q.PlanAttach(r) }
			if c.detach {
				plan = func(r vmm.PlugRequest) (any, error) { return q.PlanDetach(r) }
			}
			r := c.request(t, q, info)
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
			qemutest.Compare(t, *update, filepath.Join("testdata", "plug-"+c.name+".json"), string(text)+"\n")
		})
	}
}

// TestPlugsWithoutPorts: a machine from an image of before there were ports.
func TestPlugsWithoutPorts(t *testing.T) {
	q, info := qemu.QEMU{}, qemutest.Fixture(t, "testdata", "7.2")
	r := plugCase{yaml: "disks: [{path: /a}]\n"}.request(t, q, info)
	r.Manifest.VMM.Extra = nil
	if _, err := q.PlanAttach(r); err == nil || !strings.Contains(err.Error(), "image of a machine without") {
		t.Error(err)
	}
}
