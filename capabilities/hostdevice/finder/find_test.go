package finder

import (
	"reflect"
	"testing"

	"github.com/vmlet/vmlet/capabilities/hostdevice"
	"github.com/vmlet/vmlet/sysfs"
)

func TestFind(t *testing.T) {
	gpu := sysfs.PCIDevice{Vendor: 0x10de, Device: 0x1eb8, Driver: "vfio-pci", IOMMUGroup: 1, Address: "0000:65:00.0"}
	variant, used, none, shared := gpu, gpu, gpu, gpu
	variant.Address, variant.Driver, variant.VFIODevice = "0000:66:00.0", "nvgrace-gpu-vfio-pci", "vfio0"
	used.Address, used.Driver = "0000:67:00.0", "nouveau"
	none.Address, none.IOMMUGroup = "0000:68:00.0", -1
	shared.Address, shared.IOMMUGroup = "0000:69:00.0", 2
	other := sysfs.PCIDevice{Vendor: 0x8086, Device: 0x1533, Driver: "vfio-pci", IOMMUGroup: 3, Address: "0000:01:00.0"}
	host := &sysfs.Host{
		PCIDevices: []sysfs.PCIDevice{other, gpu, variant, used, none, shared},
		IOMMUGroups: []sysfs.IOMMUGroup{
			{ID: 1, Viable: true}, {ID: 2, Devices: []string{"0000:69:00.0", "0000:69:00.1"}}, {ID: 3, Viable: true},
		},
		MediatedDeviceTypes: []sysfs.MediatedDeviceType{{ID: "nvidia-222", Name: "GRID T4-1Q"}, {ID: "nvidia-223", Name: "GRID T4-2Q"}},
		MediatedDevices: []sysfs.MediatedDevice{
			{UUID: "b", Type: "nvidia-222", IOMMUGroup: 8}, {UUID: "a", Type: "nvidia-222", IOMMUGroup: 7},
			{UUID: "c", Type: "nvidia-222", IOMMUGroup: -1}, {UUID: "d", Type: "nvidia-223", IOMMUGroup: 9},
		},
		USBDevices: []sysfs.USBDevice{
			{Bus: 1, Device: 2, Vendor: 0x46f4, Product: 1}, {Bus: 1, Device: 3, Vendor: 0x46f4, Product: 1},
			{Bus: 1, Device: -1, Vendor: 0x46f4, Product: 1},
			{Bus: 2, Device: 4, Vendor: 0x0951, Product: 0x1666},
		},
	}
	got := Find(hostdevice.Permitted{
		PCI: []hostdevice.PCI{
			{VendorSelector: "10DE:1EB8", ResourceName: "nvidia.com/T4"},
			{AddressSelector: "0000:65:00.0", ResourceName: "nvidia.com/T4"},
			{AddressSelector: "00000000:01:00.0", ResourceName: "intel.com/i210", External: true},
			{VendorSelector: "1234:5678", ResourceName: "example.org/absent"},
		},
		Mediated: []hostdevice.Mediated{{NameSelector: "GRID_T4-1Q", ResourceName: "nvidia.com/GRID_T4-1Q"}, {NameSelector: "nvidia-223", ResourceName: "nvidia.com/GRID_T4-2Q"}},
		USB:      []hostdevice.USB{{ResourceName: "kubevirt.io/pair", Selectors: []hostdevice.USBSelector{{Vendor: "46F4", Product: "0001"}, {Vendor: "951", Product: "1666"}}}},
	}, host)
	type row struct {
		ready     []string
		obstacles []string
	}
	want := map[string]row{
		"nvidia.com/T4": {[]string{"0000:65:00.0", "0000:66:00.0"}, []string{
			"0000:67:00.0: it is bound to nouveau, not to vfio-pci",
			"0000:68:00.0: it is in no IOMMU group",
			"0000:69:00.0: IOMMU group 2 has devices that the host uses: 0000:69:00.0, 0000:69:00.1",
		}},
		"intel.com/i210":        {[]string{"0000:01:00.0"}, nil},
		"example.org/absent":    {nil, nil},
		"nvidia.com/GRID_T4-1Q": {[]string{"a", "b"}, []string{"c: it is in no IOMMU group"}},
		"nvidia.com/GRID_T4-2Q": {[]string{"d"}, nil},
		"kubevirt.io/pair":      {[]string{"1:2,2:4"}, []string{"1:3: others of its resource's selectors match nothing"}},
	}
	if len(got) != len(want) {
		t.Errorf("%d resources, want %d", len(got), len(want))
	}
	for i, r := range got {
		var obstacles []string
		for _, o := range r.Obstacles {
			obstacles = append(obstacles, o.Device+": "+o.Reason)
		}
		if g := (row{r.Ready, obstacles}); !reflect.DeepEqual(g, want[r.Name]) {
			t.Errorf("%s:\n%q, want\n%q", r.Name, g, want[r.Name])
		}
		if i > 0 && got[i-1].Name >= r.Name {
			t.Errorf("%s after %s", r.Name, got[i-1].Name)
		}
		if r.External != (r.Name == "intel.com/i210") {
			t.Errorf("%s: external %v", r.Name, r.External)
		}
	}
}
