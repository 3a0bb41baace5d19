package validation

import (
	"strings"
	"testing"

	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/fields"
	"github.com/vmlet/vmlet/contract"
	vmms "github.com/vmlet/vmlet/vmm/standard"
)

// TestVMMColumn: of the tables' fields, what is said to need QEMU is accepted by QEMU's planner and refused by every other, and
// what all VMMs have none refuses.
func TestVMMColumn(t *testing.T) {
	rows := make(map[string]string)
	for _, row := range machineTable() {
		rows[strings.TrimPrefix(row.Path, "template.spec.")] = row.VMM
	}
	const disk = "volumes: [{name: a, dataVolume: {name: a}}]}"
	const nic = "networks: [{name: a, pod: {}}]}"
	for path, text := range map[string]string{
		"domain.cpu.features[].name":                "{domain: {devices: {}, cpu: {model: Haswell, features: [{name: vmx, policy: disable}]}}}",
		"domain.machine.type":                       "{domain: {devices: {}, machine: {type: pc}}}",
		"domain.chassis.asset":                      "{domain: {devices: {}, chassis: {asset: a}}}",
		"domain.clock.utc.offsetSeconds":            "{domain: {devices: {}, clock: {utc: {offsetSeconds: 60}}}}",
		"domain.clock.timezone":                     "{domain: {devices: {}, clock: {timezone: Europe/Berlin}}}",
		"domain.features.pvspinlock.enabled":        "{domain: {devices: {}, features: {pvspinlock: {enabled: false}}}}",
		"domain.features.hypervPassthrough.enabled": "{domain: {devices: {}, features: {hypervPassthrough: {enabled: true}}}}",
		"domain.devices.disks[].cdrom.bus":          "{domain: {devices: {disks: [{name: a, cdrom: {bus: sata}}]}}, " + disk,
		"domain.devices.disks[].io":                 "{domain: {devices: {disks: [{name: a, io: native, cache: none, disk: {bus: virtio}}]}}, " + disk,
		"domain.devices.disks[].shareable":          "{domain: {devices: {disks: [{name: a, shareable: true, cache: none, disk: {bus: virtio}}]}}, " + disk,
		"domain.devices.interfaces[].model":         "{domain: {devices: {interfaces: [{name: a, masquerade: {}, model: e1000}]}}, " + nic,
		"domain.devices.interfaces[].bootOrder":     "{domain: {devices: {interfaces: [{name: a, masquerade: {}, bootOrder: 1}]}}, " + nic,
		"domain.devices.inputs[].type":              "{domain: {devices: {inputs: [{name: a, type: tablet, bus: usb}]}}}",
		"domain.devices.watchdog.i6300esb.action":   "{domain: {devices: {watchdog: {name: a, i6300esb: {action: reset}}}}}",
		"domain.devices.video.type":                 "{domain: {devices: {video: {type: virtio}}}}",
		"domain.memory.hugepages.pageSize":          "{domain: {devices: {}, memory: {guest: 1Gi, hugepages: {pageSize: 2Mi}}}}",
		"domain.clock.timer.hpet.tickPolicy":        "{domain: {devices: {}, clock: {utc: {}, timer: {hpet: {tickPolicy: delay}}}}}",
		"domain.clock.timer.rtc.tickPolicy":         "{domain: {devices: {}, clock: {utc: {}, timer: {rtc: {tickPolicy: catchup}}}}}",
		"volumes[].containerDisk.image":             "{domain: {devices: {disks: [{name: a, disk: {bus: virtio}}]}}, volumes: [{name: a, containerDisk: {image: quay.io/example/disk}}]}",
		"readinessProbe.guestAgentPing":             "{domain: {devices: {}}, readinessProbe: {guestAgentPing: {}}}",
		"domain.devices.disks[].name":               "{domain: {devices: {disks: [{name: a, disk: {bus: virtio}}]}}, " + disk,
		"domain.devices.disks[].serial":             "{domain: {devices: {disks: [{name: a, serial: s, disk: {bus: virtio}}]}}, " + disk,
		"domain.devices.interfaces[].masquerade":    "{domain: {devices: {interfaces: [{name: a, masquerade: {}}]}}, " + nic,
		"domain.devices.interfaces[].bridge":        "{domain: {devices: {interfaces: [{name: a, bridge: {}}]}}, " + nic,
		"domain.devices.rng":                        "{domain: {devices: {rng: {}}}}",
		"domain.cpu.cores":                          "{domain: {devices: {}, cpu: {cores: 2}}}",
	} {
		column, listed := rows[path]
		if !listed {
			t.Errorf("%s: no row of the tables", path)
			continue
		}
		for _, v := range vmms.Registry().All() {
			vmi := instance(t, text)
			vmi.Annotations = map[string]string{contract.AnnotationVMM: v.Name(), contract.AnnotationHypervisor: "kvm"}
			err := convert.Faults(convert.Input{Instance: vmi, Configuration: configuration.Default()})
			has := column == fields.AllVMMs || strings.EqualFold(column, v.Name())
			if has && err != nil {
				t.Errorf("%s: the table says %s, and %s refuses it: %v", path, column, v.Name(), err)
			}
			if !has && err == nil {
				t.Errorf("%s: the table says %s, and %s accepts it", path, column, v.Name())
			}
		}
	}
}
