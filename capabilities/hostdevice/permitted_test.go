package hostdevice

import (
	"fmt"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	good := Permitted{
		PCI: []PCI{
			{VendorSelector: "10DE:1EB8", ResourceName: "nvidia.com/TU104GL_Tesla_T4"},
			{AddressSelector: "0000:65:00.0", ResourceName: "nvidia.com/TU104GL_Tesla_T4"},
			{AddressSelector: "10000:e1:00.0", ResourceName: "example.org/nvme", External: true},
		},
		Mediated: []Mediated{{NameSelector: "GRID T4-1Q", ResourceName: "nvidia.com/GRID_T4-1Q"}},
		USB:      []USB{{ResourceName: "kubevirt.io/storage", Selectors: []USBSelector{{"46f4", "1"}}}},
	}
	bad := map[string]Permitted{
		"pciHostDevices[0]: want one of":                              {PCI: []PCI{{ResourceName: "a.b/c"}}},
		"pciHostDevices[0]: want one":                                 {PCI: []PCI{{VendorSelector: "10de:1eb8", AddressSelector: "0000:65:00.0", ResourceName: "a.b/c"}}},
		`pciVendorSelector: "10DE" is not a vendor and a device`:      {PCI: []PCI{{VendorSelector: "10DE", ResourceName: "a.b/c"}}},
		`pciAddressSelector: "65:00.0" is not a PCI address`:          {PCI: []PCI{{AddressSelector: "65:00.0", ResourceName: "a.b/c"}}},
		`resourceName: "T4": want DOMAIN/NAME`:                        {PCI: []PCI{{VendorSelector: "10DE:1EB8", ResourceName: "T4"}}},
		`resourceName: "x.kubernetes.io/T4"`:                          {PCI: []PCI{{VendorSelector: "10DE:1EB8", ResourceName: "x.kubernetes.io/T4"}}},
		`resourceName: "devices.kubevirt.io/kvm"`:                     {PCI: []PCI{{VendorSelector: "10DE:1EB8", ResourceName: "devices.kubevirt.io/kvm"}}},
		"mdevNameSelector: is missing":                                {Mediated: []Mediated{{ResourceName: "a.b/c"}}},
		"usb[0].selectors: is missing":                                {USB: []USB{{ResourceName: "a.b/c"}}},
		`usb[0].selectors[0]: vendor and product: "000x:0001" is not`: {USB: []USB{{ResourceName: "a.b/c", Selectors: []USBSelector{{"x", "1"}}}}},
		"is a resource of pciHostDevices too": {
			PCI:      []PCI{{VendorSelector: "10DE:1EB8", ResourceName: "a.b/c"}},
			Mediated: []Mediated{{NameSelector: "x", ResourceName: "a.b/c"}},
		},
	}
	if faults := faultsOf(good); len(faults) != 0 {
		t.Errorf("%q", faults)
	}
	for want, p := range bad {
		if got := strings.Join(faultsOf(p), "\n"); !strings.Contains(got, "permittedHostDevices.") || !strings.Contains(got, want) {
			t.Errorf("%q doesn't say %q", got, want)
		}
	}
}

func faultsOf(p Permitted) (faults []string) {
	p.Validate(func(key, format string, args ...any) {
		faults = append(faults, key+": "+fmt.Sprintf(format, args...))
	})
	return faults
}
