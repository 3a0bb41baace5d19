package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/capabilities/hostdevice"
	"github.com/vmlet/vmlet/capabilities/sources"
	"github.com/vmlet/vmlet/vmm/profile"
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
		Config: sources.Config{
			QEMU:                  sources.QEMU{Binary: "qemu"},
			CloudHypervisor:       sources.CloudHypervisor{Binary: "ch", Firmware: "fw"},
			VMMs:                  []string{"qemu", "bochs", "qemu"},
			VirtualizationProfile: profile.Profile{Components: profile.Components{HypervisorDevice: "/dev/xen"}},
			PermittedHostDevices:  hostdevice.Permitted{USB: []hostdevice.USB{{ResourceName: "a.b/c"}}},
		},
		Users:     UserRange{First: 2147483647, Count: 2},
		RAM:       RAMConfig{Size: "1g,mode=777", Huge: "sometimes"},
		HugePages: []HugePageDir{{PageSize: "2Mi", Path: "hugepages"}},
		Cgroup:    CgroupConfig{Parent: "/"},
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
