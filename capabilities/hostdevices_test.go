package capabilities

import (
	"testing"

	"github.com/vmlet/vmlet/capabilities/hostdevice"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/sysfs"
	"google.golang.org/protobuf/proto"
)

func TestHostDevices(t *testing.T) {
	permitted := hostdevice.Permitted{PCI: []hostdevice.PCI{{VendorSelector: "10DE:1EB8", ResourceName: "nvidia.com/T4", External: true}}}
	got := hostDevices(permitted, &sysfs.Host{
		PCIDevices: []sysfs.PCIDevice{
			{Address: "0000:65:00.0", Vendor: 0x10de, Device: 0x1eb8, Driver: "vfio-pci", IOMMUGroup: 1},
			{Address: "0000:66:00.0", Vendor: 0x10de, Device: 0x1eb8, IOMMUGroup: -1},
		},
		IOMMUGroups: []sysfs.IOMMUGroup{{ID: 1, Viable: true}},
	})
	want := &capabilitiesv1.HostDeviceResource{
		Resource: "nvidia.com/T4", Kind: "pci", External: true, Devices: []string{"0000:65:00.0"},
		Obstacles: []*capabilitiesv1.HostDeviceObstacle{{
			Device: "0000:66:00.0", Reason: "it is in no IOMMU group",
			Remedy: "enable VT-d or AMD-Vi in firmware and boot with intel_iommu=on (AMD's is on by itself)",
		}},
	}
	if len(got) != 1 || !proto.Equal(got[0], want) {
		t.Errorf("%v, want %v", got, want)
	}
	if none := hostDevices(hostdevice.Permitted{}, new(sysfs.Host)); none != nil {
		t.Errorf("%v of nothing", none)
	}
}
