package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/capabilities/hostdevice"
	"github.com/vmlet/vmlet/hypervisor/profile"
)

func load(t *testing.T, content string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vmlet.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path)
}

func TestLoadConfig(t *testing.T) {
	c, err := load(t, "stateDir: /srv/vmlet\nusers: {first: 5000, count: 10}\nram: {huge: advise}\nallowedUsers: [1000]\n")
	if err != nil {
		t.Fatal(err)
	}
	if c, err = c.Complete(); err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if c.StateDir != "/srv/vmlet" || c.Users.First != 5000 || c.RAM.Huge != "advise" || c.Socket != "/run/vmlet/vmlet.sock" {
		t.Errorf("loaded %+v", c)
	}
	for content, want := range map[string]string{
		"stateDir: /a\nstatedir: /b\n":                             `vmlet.yaml:2: unknown key "statedir": there are allowedUsers, `,
		"users:\n  first: many\n":                                  `vmlet.yaml:2: users.first: "many": want a whole number`,
		"ram: {sise: 1g}\n":                                        `vmlet.yaml:1: ram: unknown key "sise": there are huge, size`,
		"virtualizationProfile:\n  virtLauncher:\n    overhead: 1": `vmlet.yaml:3: virtualizationProfile.virtLauncher: unknown key "overhead"`,
		"a: [\n":                       "line",
		"stateDir: /a\n---\nrunDir: /": "second document",
	} {
		if _, err := load(t, content); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", content, err, want)
		}
	}
	if _, err := load(t, ""); err != nil {
		t.Errorf("an empty file: %v", err)
	}
	if _, err := Load("/nonexistent"); err == nil {
		t.Error("a file that is not there is taken")
	}
}

// TestValidateNamesEveryFault makes one fault in each field.
func TestValidateNamesEveryFault(t *testing.T) {
	c, err := Config{
		StateDir: "relative", RunDir: "relative", Socket: "/" + strings.Repeat("s", 110), Shim: "/a/../b",
		QEMU:                  QEMUConfig{Binary: "qemu"},
		CloudHypervisor:       CloudHypervisorConfig{Binary: "ch", Firmware: "fw"},
		VMMs:                  []string{"qemu", "bochs", "qemu"},
		Users:                 UserRange{First: 2147483647, Count: 2},
		RAM:                   RAMConfig{Size: "1g,mode=777", Huge: "sometimes"},
		HugePages:             []HugePageDir{{PageSize: "2Mi", Path: "hugepages"}},
		Cgroup:                CgroupConfig{Parent: "/"},
		VirtualizationProfile: profile.Profile{Components: profile.Components{HypervisorDevice: "/dev/xen"}},
		PermittedHostDevices:  hostdevice.Permitted{USB: []hostdevice.USB{{ResourceName: "a.b/c"}}},
		DevicePlugins: DevicePluginsConfig{KubeletDir: "kubelet", Counts: map[string]int{"kvm": 0}, QGSSocket: "qgs",
			CDI: map[string]string{"devices.kubevirt.io/kvm": "kvm"}},
	}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	err = c.Validate()
	for _, key := range []string{"stateDir", "runDir", "socket", "shim", "qemu.binary", "cloudHypervisor.binary", "cloudHypervisor.firmware", "vmms[1]", "vmms[2]", "users", "ram.size", "ram.huge", "hugePages[0].path", "cgroup.parent",
		"virtualizationProfile.virtualizationComponents.hypervisorDevice", "permittedHostDevices.usb[0].selectors",
		"devicePlugins.kubeletDir", "devicePlugins.counts.kvm", "devicePlugins.qgsSocket", `devicePlugins.cdi["devices.kubevirt.io/kvm"]`} {
		if err == nil || !strings.Contains(err.Error(), "configuration: "+key+": ") {
			t.Errorf("%s is not complained about in: %v", key, err)
		}
	}
}

// TestKubeVirtKeys reads what an administrator brings along from KubeVirt.
func TestKubeVirtKeys(t *testing.T) {
	c, err := load(t, `
obsoleteCPUModels: {"486": true, qemu64: false, Penryn: true}
virtualizationProfile:
  name: cloudhypervisor-mshv
  virtualizationComponents: {hypervisorDevice: /dev/mshv, vmmProcessExecutable: cloud-hypervisor}
  virtLauncher: {virtLauncherOverhead: 150Mi}
permittedHostDevices:
  pciHostDevices:
  - {pciVendorSelector: "10DE:1EB8", resourceName: nvidia.com/T4, externalResourceProvider: true}
`)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = c.Complete(); err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if c.Hypervisor != "mshv" {
		t.Errorf("the profile's device chooses %q", c.Hypervisor)
	}
	if got := c.vmmNames(); !slices.Equal(got, []string{"cloud-hypervisor", "qemu"}) {
		t.Errorf("the profile's program makes the order of VMMs %q", got)
	}
	obsolete := c.ObsoleteModels()
	for model, want := range map[string]bool{"486": true, "qemu64": false, "Penryn": true, "kvm64": true, "Opteron_G2": true, "Haswell": false} {
		if slices.Contains(obsolete, model) != want {
			t.Errorf("%s is obsolete: %v", model, !want)
		}
	}
	if !slices.IsSorted(obsolete) {
		t.Errorf("%q is not sorted", obsolete)
	}
	c, err = Config{Hypervisor: "kvm", VMMs: []string{"qemu"}, VirtualizationProfile: c.VirtualizationProfile}.Complete()
	if err != nil || c.Hypervisor != "kvm" || c.vmmNames()[0] != "qemu" {
		t.Errorf("hypervisor: and vmms: count more than the profile, and are %q, %q (%v)", c.Hypervisor, c.vmmNames(), err)
	}
}

// TestOrderOfVMMs: those that are named come first, and none is lost.
func TestOrderOfVMMs(t *testing.T) {
	for content, want := range map[string]string{
		"":                                 "qemu cloud-hypervisor",
		"vmms: []":                         "qemu cloud-hypervisor",
		"vmms: [cloud-hypervisor]":         "cloud-hypervisor qemu",
		"vmms: [cloud-hypervisor, qemu]":   "cloud-hypervisor qemu",
		"vmms: [qemu, cloud-hypervisor]\n": "qemu cloud-hypervisor",
	} {
		c, err := load(t, content)
		if err != nil {
			t.Fatal(err)
		}
		if c, err = c.Complete(); err != nil || c.Validate() != nil {
			t.Fatal(err, c.Validate())
		}
		if got := strings.Join(c.vmmNames(), " "); got != want {
			t.Errorf("%q: %s, want %s", content, got, want)
		}
	}
}
