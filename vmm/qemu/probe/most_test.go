package probe

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/qemutest"
)

// TestMostDevices has each machine made with as many disks, networks and inputs as a plan is made
// for: what QEMU has no room for is refused before it is started.
func TestMostDevices(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, info vmm.Info) {
		for _, machine := range []string{"q35", "pc", "microvm"} {
			for _, bus := range []string{spec.BusVirtio, spec.BusSCSI, spec.BusSATA, spec.BusUSB} {
				t.Run(machine+"/"+bus, func(t *testing.T) {
					t.Parallel()
					r, disks, networks := most(t, q, info, machine, bus)
					t.Logf("%d disks, %d networks", disks, networks)
					if disks > 0 {
						accepted(t, q, r)
					}
				})
			}
		}
	})
}

// most is a plan's request with as many disks on a bus as it can have, and then as many networks.
func most(t *testing.T, q *Program, info vmm.Info, machine, bus string) (r vmm.PlanRequest, disks, networks int) {
	t.Helper()
	planned := func(disks, networks int) bool {
		r = qemutest.Case{YAML: manyDevices(machine, bus, disks, networks)}.Request(info)
		r.User, r.Paused = nil, true
		_, err := q.Plan(r)
		return err == nil
	}
	for disks = spec.MaxDisks; disks > 0 && !planned(disks, 0); disks-- {
	}
	for networks = spec.MaxInterfaces; networks > 0 && !planned(disks, networks); networks-- {
	}
	planned(disks, networks)
	return r, disks, networks
}

func manyDevices(machine, bus string, disks, networks int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "machineType: %s\n", machine)
	if machine == "microvm" {
		b.WriteString("boot: {kernel: {path: /boot/vmlinuz, cmdline: x}}\n")
	} else {
		b.WriteString("devices: {inputs: [{}, {bus: virtio}, {bus: virtio}], video: {}}\n")
	}
	b.WriteString("disks:\n")
	for i := range disks {
		fmt.Fprintf(&b, "- {path: /images/%d.img, format: raw, bus: %s}\n", i, bus)
	}
	b.WriteString("networks:\n")
	for range networks {
		b.WriteString("- {user: {}}\n")
	}
	return b.String()
}
