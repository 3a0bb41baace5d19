package configuration

import (
	"strings"
	"testing"
)

// TestStack: a part of a profile that has a fault is told of and has no effect; without the gate none
// has.
func TestStack(t *testing.T) {
	const gate = "developerConfiguration: {featureGates: [PluginVirtualizationStacks]}, "
	const hooks = "virtualizationProfile: {pluginWebhooks: {webhookContainerImage: a, validatingWebhooks: [{name: w, restServicePath: /a, rules: "
	for config, c := range map[string]struct {
		says  string
		holds func(Configuration) bool
	}{
		"virtualizationProfile: {virtLauncher: {virtLauncherImage: a}}": {
			"spec.configuration.virtualizationProfile: add the feature gate PluginVirtualizationStacks", func(c Configuration) bool { return c.Stack.Launcher == "" }},
		gate + "virtualizationProfile: {name: a}": {"", func(c Configuration) bool { return c.Stack.Name == "a" && c.Stack.VMM == "" && c.Hypervisor == "" }},
		gate + "virtualizationProfile: {virtualizationComponents: {hypervisorDevice: /dev/mshv, vmmProcessExecutable: cloud-hypervisor, pitPidPrefix: ''}}": {
			"", func(c Configuration) bool {
				return c.Hypervisor == "mshv" && c.Stack.VMM == "cloud-hypervisor" && c.Nodes.VirtualizationProfile.Components.PITPIDPrefix != nil
			}},
		gate + "virtualizationProfile: {virtualizationComponents: {hypervisorDevice: /dev/xen}, virtLauncher: {virtLauncherImage: a}}": {
			"virtualizationComponents.hypervisorDevice: \"/dev/xen\" is the device of no hypervisor", func(c Configuration) bool { return c.Hypervisor == "" && c.Stack.Launcher == "a" }},
		gate + "virtualizationProfile: {virtualizationComponents: {vmmProcessExecutable: microvm}, virtLauncher: {virtLauncherImage: a}}": {
			"", func(c Configuration) bool {
				_, known := c.Stack.Registry().Get("microvm")
				return known && c.Stack.VMM == "microvm" && c.Nodes.VirtualizationProfile.Components.VMMProcessExecutable == ""
			}},
		gate + "virtualizationProfile: {virtualizationComponents: {vmmProcessExecutable: microvm}}": {
			"\"microvm\" is the program of no VMM that is known", func(c Configuration) bool { return c.Stack.VMM == "" && len(c.Stack.VMMs) == 0 }},
		gate + "virtualizationProfile: {virtualizationComponents: {vmmProcessExecutable: Micro_VM}, virtLauncher: {virtLauncherImage: a}}": {
			"\"Micro_VM\" is the program of no VMM that is known", func(c Configuration) bool { return c.Stack.VMM == "" && len(c.Stack.VMMs) == 0 }},
		gate + "virtualizationProfile: {virtLauncher: {virtLauncherCapabilities: [cap_net_raw]}}": {
			"virtLauncherCapabilities", func(c Configuration) bool { return len(c.Stack.Capabilities) == 0 }},
		gate + "virtualizationProfile: {virtLauncher: {virtLauncherOverhead: -1}}": {
			"virtLauncherOverhead: -1 is no size", func(c Configuration) bool { return c.Stack.Overhead == nil }},
		gate + "virtualizationProfile: {virtualizationComponents: {vmmDaemonProcess: virtqemud}}": {
			"vmmDaemonProcess: virtqemud is not used", func(c Configuration) bool { return true }},
		gate + hooks + "[{operations: [CREATE], apiGroups: [kubevirt.io, ''], apiVersions: [v1], resources: [pods]}]}]}}": {
			"validatingWebhooks[w].rules[0].apiGroups: \"\": want kubevirt.io", func(c Configuration) bool { return len(c.Stack.Webhooks.ValidatingWebhooks) == 0 }},
		gate + hooks + "[{operations: [CREATE], apiGroups: [kubevirt.io], apiVersions: [], resources: [a]}]}]}}": {
			"validatingWebhooks[w].rules[0].apiVersions: want at least one", func(c Configuration) bool { return len(c.Stack.Webhooks.ValidatingWebhooks) == 0 }},
		gate + hooks + "[{operations: [create], apiGroups: [kubevirt.io], apiVersions: [v1], resources: [a]}]}]}}": {
			"validatingWebhooks[w].rules[0].operations: \"create\": want one of CREATE", func(c Configuration) bool { return len(c.Stack.Webhooks.ValidatingWebhooks) == 0 }},
		gate + strings.ReplaceAll(hooks, "/a", "/Validate") + "[{operations: [CREATE], apiGroups: [kubevirt.io], apiVersions: [v1], resources: [a]}]}]}}": {
			"validatingWebhooks[w].restServicePath: \"/Validate\": the API server wants", func(c Configuration) bool { return len(c.Stack.Webhooks.ValidatingWebhooks) == 0 }},
		gate + "virtualizationProfile: {pluginWebhooks: {webhookContainerImage: 'a b'}}": {
			"pluginWebhooks.webhookContainerImage: \"a b\" is no container image", func(c Configuration) bool { return c.Stack.Webhooks == nil }},
		gate + hooks + "[{operations: ['*'], apiGroups: [pool.kubevirt.io], apiVersions: ['*'], resources: ['*/*']}]}]}}": {
			"", func(c Configuration) bool { return len(c.Stack.Webhooks.ValidatingWebhooks) == 1 }},
	} {
		got, faults := read(t, "spec: {configuration: {"+config+"}}")
		var said []string
		for _, f := range faults {
			said = append(said, f.String())
		}
		text := strings.Join(said, "\n")
		if !strings.Contains(text, c.says) || (text != "") != (c.says != "") {
			t.Errorf("%s: says %q, want %q", config, text, c.says)
		}
		if !c.holds(got) {
			t.Errorf("%s: %+v", config, got.Stack)
		}
	}
}
