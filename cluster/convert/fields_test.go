package convert

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// withDevices has two disks and two volumes without one.
func withDevices(t *testing.T) *kubevirtv1.VirtualMachineInstanceSpec {
	t.Helper()
	const text = "{domain: {cpu: {features: [{name: x}]}, devices: {disks: [{name: a, cdrom: {}}, {name: b}], interfaces: [{name: n}], inputs: [{name: i, type: tablet}]}}, " +
		"networks: [{name: n, pod: {}}], volumes: [{name: c}, {name: b}, {name: a}, {name: d}]}"
	var s kubevirtv1.VirtualMachineInstanceSpec
	if err := yaml.UnmarshalStrict([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// TestInstanceField: a fault of the specification is told by the field that the user wrote.
func TestInstanceField(t *testing.T) {
	s := withDevices(t)
	at := Place{Spec: field.NewPath("spec", "template", "spec"), Annotations: field.NewPath("annotations")}
	for name, want := range map[string]string{
		"disks[0].bus": "domain.devices.disks[0].cdrom.bus", "disks[1].bus": "domain.devices.disks[1].disk.bus",
		"disks[1].readOnly": "domain.devices.disks[1].disk.readonly", "disks[1].serial": "domain.devices.disks[1].serial",
		"disks[1].path": "volumes[1]", "disks[0].backingFiles[0].path": "volumes[2]", "disks[1].queues": "domain.devices.disks[1]",
		"disks[2].bus": "volumes[0]", "disks[3]": "volumes[3]", "disks[4].serial": "domain.devices.disks",
		"disks": "domain.devices.disks", "disks[x].serial": "domain.devices.disks", "disks[-1]": "domain.devices.disks", "disks[": "domain.devices.disks",
		"networks[0].mac": "domain.devices.interfaces[0].macAddress", "networks[0].model": "domain.devices.interfaces[0].model",
		"networks[0].user.cidr": "networks[0].pod.vmNetworkCIDR",
		"networks[0].pod.cidr":  "networks[0].pod.vmNetworkCIDR", "networks[0].pod.ipv6Cidr": "networks[0].pod.vmIPv6NetworkCIDR", "networks[0].pod.fallback.ports[0].hostPort": "domain.devices.interfaces[0].ports",
		"networks[0].pod.dhcp.private[0].option": "domain.devices.interfaces[0].dhcpOptions.privateOptions", "networks[0].pod.dhcp.bootFile": "domain.devices.interfaces[0].dhcpOptions.bootFileName",
		"networks[0].pod.dhcp.ntpServers[1]": "domain.devices.interfaces[0].dhcpOptions.ntpServers", "networks[0].pod.ports[1].last": "domain.devices.interfaces[0].ports", "networks[0].pod": "domain.devices.interfaces[0]", "networks[0].pod.binding": "domain.devices.interfaces[0].bridge",
		"networks[1].mac":                   "domain.devices.interfaces",
		"networks[0].pod.fallback.bootFile": "domain.devices.interfaces[0].dhcpOptions.bootFileName", "networks[0].pod.fallback.tftpServer": "domain.devices.interfaces[0].dhcpOptions.tftpServerName",
		"cpu.features[0].name": "domain.cpu.features[0].name", "cpu.features[0]": "domain.cpu.features[0]", "cpu.features[1].name": "domain.cpu.features", "cpu.threads": "domain.cpu.threads", "cpu.affinity": "domain.cpu", "cpu.model": "domain.cpu.model",
		"memory.size":      "domain.memory.guest",
		"boot.kernel.path": "domain.firmware.kernelBoot.container.kernelPath", "boot.kernel.initrd": "domain.firmware.kernelBoot.container.initrdPath",
		"boot.kernel.cmdline": "domain.firmware.kernelBoot.kernelArgs", "boot.kernel": "domain.firmware.kernelBoot", "boot.firmware": "domain.firmware.bootloader", "boot": "domain.firmware",
		"machineType": "domain.machine.type", "machineTypes": "", "labels": "", "": "",
		"devices.inputs[0].bus": "domain.devices.inputs[0].bus", "devices.inputs[1].bus": "domain.devices.inputs", "devices.watchdog.model": "domain.devices.watchdog", "devices.entropy": "domain.devices.rng", "devices": "domain.devices",
		"clock.pit": "domain.clock.timer", "clock.timezone": "domain.clock.timezone", "features.hyperv.ipi": "domain.features.hyperv",
		"system.assetTag": "domain.chassis.asset", "system.serial": "domain.firmware.serial", "system.sku": "domain.firmware", "stopGracePeriod": "terminationGracePeriodSeconds",
	} {
		if got := InstanceField(name, s, at).String(); got != strings.TrimSuffix("spec.template.spec."+want, ".") {
			t.Errorf("%s: %s, want spec.template.spec.%s", name, got, want)
		}
	}
	if got := InstanceField("vmm", s, at).String(); got != "annotations[vmlet.io/vmm]" {
		t.Errorf("vmm: %s", got)
	}
}
