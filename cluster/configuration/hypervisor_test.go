package configuration

import (
	"strings"
	"testing"
)

// TestHypervisor: the gate opens the choice; a name that is not known is told of, and is KVM.
func TestHypervisor(t *testing.T) {
	const gate = ", developerConfiguration: {featureGates: [ConfigurableHypervisor]}}"
	for config, want := range map[string]struct{ name, says string }{
		"{hypervisorConfiguration: {name: mshv}}":                                                                     {"", "hypervisorConfiguration.name: add the feature gate ConfigurableHypervisor"},
		"{hypervisorConfiguration: {name: kvm}}":                                                                      {"", ""},
		"{hypervisors: [{name: kvm}]}":                                                                                {"", ""},
		"{hypervisors: [{name: hyperv-direct}]}":                                                                      {"", "configuration.hypervisors: add the feature gate"},
		"{hypervisorConfiguration: {name: mshv}" + gate:                                                               {"mshv", ""},
		"{hypervisorConfiguration: {name: kvm}" + gate:                                                                {"kvm", ""},
		"{hypervisorConfiguration: {name: auto}" + gate:                                                               {"auto", ""},
		"{hypervisorConfiguration: {name: hyperv-layered}" + gate:                                                     {"mshv", ""},
		"{hypervisors: [{name: hyperv-direct}]" + gate:                                                                {"mshv", ""},
		"{hypervisors: [{}]" + gate:                                                                                   {"", ""},
		"{hypervisorConfiguration: {name: kvm}, hypervisors: [{name: mshv}]" + gate:                                   {"kvm", `hypervisors: "mshv" does not count, as spec.configuration.hypervisorConfiguration.name has "kvm" before it`},
		"{hypervisors: [{name: kvm}, {name: mshv}]" + gate:                                                            {"kvm", `hypervisors: "mshv" does not count, as spec.configuration.hypervisors has "kvm" before it`},
		"{hypervisorConfiguration: {name: mshv}, hypervisors: [{name: hyperv-direct}, {name: hyperv-layered}]" + gate: {"mshv", ""},
		"{hypervisorConfiguration: {name: mshv}, hypervisors: [{name: xen}]" + gate:                                   {"mshv", `hypervisors: "xen" does not count`},
		"{hypervisorConfiguration: {name: kvm}, hypervisors: [{name: kvm}]" + gate:                                    {"kvm", ""},
		"{hypervisorConfiguration: {name: xen}" + gate:                                                                {"kvm", `"xen" is no hypervisor: name auto or kvm, mshv, emulation; kvm is used`},
		"{hypervisorConfiguration: {name: xen}, virtualizationProfile: {virtualizationComponents: {hypervisorDevice: /dev/mshv}}, developerConfiguration: {useEmulation: true, featureGates: [ConfigurableHypervisor, PluginVirtualizationStacks]}}": {
			"kvm", "kvm is used"},
		"{hypervisorConfiguration: {name: mshv}, developerConfiguration: {featureGates: [ConfigurableHypervisor], disabledFeatureGates: [ConfigurableHypervisor]}}": {"", "add the feature gate"},
	} {
		got, faults := read(t, "spec: {configuration: "+config+"}")
		var said []string
		for _, f := range faults {
			said = append(said, f.String())
		}
		if text := strings.Join(said, "\n"); got.Hypervisor != want.name || !strings.Contains(text, want.says) || (text != "") != (want.says != "") {
			t.Errorf("%s: %q, says %q, want %q and %q", config, got.Hypervisor, text, want.name, want.says)
		}
	}
}

// TestHostDevices: devices with a fault are left out as a whole, and told of.
func TestHostDevices(t *testing.T) {
	const sound = "{pciVendorSelector: '10DE:1EB8', resourceName: nvidia.com/T4}"
	for devices, want := range map[string]struct {
		devices int
		says    string
	}{
		"[" + sound + "]": {1, ""},
		"[" + sound + ", {pciVendorSelector: 'a', resourceName: nvidia.com/T5}]":    {0, "spec.configuration.permittedHostDevices.pciHostDevices[1].pciVendorSelector"},
		"[{pciVendorSelector: '10DE:1EB8', resourceName: devices.kubevirt.io/kvm}]": {0, "spec.configuration.permittedHostDevices.pciHostDevices[0]"},
	} {
		got, faults := read(t, "spec: {configuration: {permittedHostDevices: {pciHostDevices: "+devices+"}}}")
		said := ""
		if len(faults) > 0 {
			said = faults[0].String()
		}
		if len(got.Nodes.PermittedHostDevices.PCI) != want.devices || !strings.HasPrefix(said, want.says) || (said != "") != (want.says != "") {
			t.Errorf("%s: %d devices, says %q", devices, len(got.Nodes.PermittedHostDevices.PCI), said)
		}
	}
}
