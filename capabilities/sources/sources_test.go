package sources

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func sourcesOf(t *testing.T, content string) (File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vmlet.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path)
}

// TestKubeVirtKeys reads what an administrator brings along from KubeVirt.
func TestKubeVirtKeys(t *testing.T) {
	c, err := sourcesOf(t, `
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
	if c.Hypervisor != "mshv" {
		t.Errorf("the profile's device chooses %q", c.Hypervisor)
	}
	if got := c.VMMNames(); !slices.Equal(got, []string{"cloud-hypervisor", "qemu"}) {
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
	own := Config{Hypervisor: "kvm", VMMs: []string{"qemu"}, VirtualizationProfile: c.VirtualizationProfile}.Complete()
	if own.Hypervisor != "kvm" || own.VMMNames()[0] != "qemu" {
		t.Errorf("hypervisor: and vmms: count more than the profile, and are %q, %q", own.Hypervisor, own.VMMNames())
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
		c, err := sourcesOf(t, content)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.VMMNames(), " "); got != want {
			t.Errorf("%q: %s, want %s", content, got, want)
		}
	}
}

// TestLoad: the agent's own keys are left to it, and all others are as strict as there.
func TestLoad(t *testing.T) {
	c, err := sourcesOf(t, "stateDir: /srv/v\nusers: {first: 5000, count: ten}\nkubernetes: {labels: sometimes}\nhypervisor: kvm\n")
	if err != nil {
		t.Fatal(err)
	}
	if c.StateDir != "/srv/v" || c.Hypervisor != "kvm" {
		t.Errorf("stateDir %q, hypervisor %q: want /srv/v, kvm", c.StateDir, c.Hypervisor)
	}
	if c, err = Load(""); err != nil || c.StateDir != DefaultStateDir || c.QEMU.Binary == "" {
		t.Errorf("defaults: %+v, %v", c, err)
	}
	for content, want := range map[string]string{
		"stateDir: here":             `configuration: stateDir: "here" is not an absolute`,
		"qemu: {binary: qemu}":       `configuration: qemu.binary: "qemu" is not an absolute`,
		"qemu: {program: /bin/qemu}": `vmlet.yaml:1: qemu: unknown key "program"`,
		"vmms: [bochs]":              `configuration: vmms[0]: "bochs" is no VMM`,
	} {
		if _, err := sourcesOf(t, content); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", content, err, want)
		}
	}
	if _, err := Load("/nonexistent"); err == nil {
		t.Error("a file that is not there is taken")
	}
}
