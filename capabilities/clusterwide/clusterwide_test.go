package clusterwide

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/capabilities/hostdevice"
	"github.com/vmlet/vmlet/vmm/profile"
)

func full() Configuration {
	return Configuration{
		ObsoleteCPUModels: map[string]bool{"Haswell": true, "Conroe": false},
		PermittedHostDevices: hostdevice.Permitted{
			PCI:      []hostdevice.PCI{{VendorSelector: "10DE:1EB8", ResourceName: "nvidia.com/T4", External: true}},
			Mediated: []hostdevice.Mediated{{NameSelector: "GRID T4-1Q", ResourceName: "nvidia.com/GRID"}},
			USB:      []hostdevice.USB{{ResourceName: "kubevirt.io/stick", Selectors: []hostdevice.USBSelector{{Vendor: "46f4", Product: "0001"}}}},
		},
		VirtualizationProfile: profile.Profile{Name: "own", Components: profile.Components{
			HypervisorDevice: "/dev/kvm", VMMProcessExecutable: "qemu-system-x86", VCPURegex: `(\d+)`, PITPIDPrefix: new(""),
		}},
	}
}

// TestMarshal: what is written is read again, whatever of it is set.
func TestMarshal(t *testing.T) {
	for _, c := range []Configuration{{}, full(), {ObsoleteCPUModels: map[string]bool{"486": true}}} {
		content, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(content, "f")
		if err != nil {
			t.Fatalf("%s%v", content, err)
		}
		if again, err := got.Marshal(); err != nil || string(again) != string(content) {
			t.Errorf("%s became %s (%v)", content, again, err)
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	if c, err := Load(path); err != nil || !reflect.DeepEqual(c, Configuration{}) {
		t.Errorf("a file that is not there: %+v, %v", c, err)
	}
	for content, want := range map[string]string{
		"obsoleteCPUModels: [a]": "obsoleteCPUModels",
		"stateDir: /a":           `unknown key "stateDir"`,
		"permittedHostDevices: {usb: [{resourceName: a.b/c}]}":              "permittedHostDevices.usb[0].selectors",
		"virtualizationProfile: {virtualizationComponents: {vCpuRegex: a}}": "virtualizationProfile.virtualizationComponents.vCpuRegex",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %s and %q in it", content, err, path, want)
		}
	}
}

// TestUnder: a node's own word counts.
func TestUnder(t *testing.T) {
	own := Configuration{
		ObsoleteCPUModels:     map[string]bool{"Haswell": false, "n270": true},
		PermittedHostDevices:  hostdevice.Permitted{USB: []hostdevice.USB{{ResourceName: "a.b/c"}}},
		VirtualizationProfile: profile.Profile{Name: "node"},
	}
	want := own
	want.ObsoleteCPUModels = map[string]bool{"Haswell": false, "Conroe": false, "n270": true}
	if got := full().Under(own); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	want = full()
	want.VirtualizationProfile.Components.HypervisorDevice, want.VirtualizationProfile.Components.VMMProcessExecutable = "", ""
	if got := full().Under(Configuration{}); !reflect.DeepEqual(got, want) {
		t.Errorf("under nothing: %+v", got)
	}
	if got := (Configuration{}).Under(own); !reflect.DeepEqual(got, own) {
		t.Errorf("nothing under the node's: %+v", got)
	}
}
