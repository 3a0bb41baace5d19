package configuration

import (
	"fmt"
	"maps"
	"strings"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/capabilities/hostdevice"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/standard"
)

// hypervisor reads the hypervisor of VMs that name none. An unknown name is reported and means KVM, whatever a
// profile or useEmulation would choose without it.
func (c *Configuration) hypervisor(s *kubevirtv1.KubeVirtConfiguration, faults *[]Ignored) {
	known := standard.Registry()
	same := func(a, b string) bool {
		first, is := known.Canonical(a)
		second, _ := known.Canonical(b)
		return a == b || is && first == second
	}
	field, named := "configuration.hypervisorConfiguration.name", ""
	if s.HypervisorConfiguration != nil {
		named = s.HypervisorConfiguration.Name
	}
	for _, other := range s.Hypervisors {
		switch {
		case named == "":
			field, named = "configuration.hypervisors", other.Name
		case other.Name != "" && !same(other.Name, named):
			*faults = append(*faults, Ignored{"configuration.hypervisors", fmt.Sprintf("%.63q does not count, as spec.%s has %.63q before it", other.Name, field, named)})
		}
	}
	if named == "" {
		return
	}
	if !c.FeatureGates[GateConfigurableHypervisor] {
		if named != hypervisor.NameKVM {
			*faults = append(*faults, Ignored{field, "add the feature gate " + GateConfigurableHypervisor + " to developerConfiguration.featureGates"})
		}
		return
	}
	name, is := known.Canonical(named)
	switch {
	case named == hypervisor.NameAuto:
		name = named
	case !is:
		*faults = append(*faults, Ignored{field,
			fmt.Sprintf("%.63q is no hypervisor: name %s or %s; %s is used", named, hypervisor.NameAuto, strings.Join(known.Names(), ", "), hypervisor.NameKVM)})
		name = hypervisor.NameKVM
	}
	c.Hypervisor = name
}

// nodes reads what each node's agent is given. Devices with a fault are left out as a whole: a part
// of them would be a surprise.
func (c *Configuration) nodes(s *kubevirtv1.KubeVirtConfiguration, faults *[]Ignored) {
	c.Nodes.ObsoleteCPUModels = maps.Clone(s.ObsoleteCPUModels)
	if s.PermittedHostDevices == nil {
		return
	}
	permitted, sound := hostDevices(s.PermittedHostDevices), true
	permitted.Validate(func(key, format string, args ...any) {
		sound = false
		*faults = append(*faults, Ignored{"configuration." + key, fmt.Sprintf(format, args...) + "; no host device is permitted until it is mended"})
	})
	if sound {
		c.Nodes.PermittedHostDevices = permitted
	}
}

// hostDevices are the devices as agents have them.
func hostDevices(d *kubevirtv1.PermittedHostDevices) (p hostdevice.Permitted) {
	for _, one := range d.PCIHostDevices {
		p.PCI = append(p.PCI, hostdevice.PCI{
			VendorSelector: one.PCIVendorSelector, ResourceName: one.ResourceName, External: one.ExternalResourceProvider,
		})
	}
	for _, one := range d.MediatedDevices {
		p.Mediated = append(p.Mediated, hostdevice.Mediated{
			NameSelector: one.MDEVNameSelector, ResourceName: one.ResourceName, External: one.ExternalResourceProvider,
		})
	}
	for _, one := range d.USB {
		device := hostdevice.USB{ResourceName: one.ResourceName, External: one.ExternalResourceProvider}
		for _, selector := range one.Selectors {
			device.Selectors = append(device.Selectors, hostdevice.USBSelector{Vendor: selector.Vendor, Product: selector.Product})
		}
		p.USB = append(p.USB, device)
	}
	return p
}
