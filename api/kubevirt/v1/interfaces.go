package v1

// Interface is a network interface of a guest.
//
// +kubebuilder:validation:XValidation:rule="[has(self.masquerade), has(self.bridge), has(self.sriov), has(self.passtBinding), has(self.binding), has(self.slirp), has(self.macvtap), has(self.passt)].filter(x, x).size() <= 1",message="at most one of masquerade, bridge, sriov, passtBinding, binding, slirp, macvtap and passt may be set"
type Interface struct {
	// Name of the network that the interface is connected to.
	Name string `json:"name"`
	// Model of the interface: virtio (the default), e1000, e1000e, igb, ne2k_pci, pcnet or
	// rtl8139.
	// +optional
	Model string `json:"model,omitempty"`
	// The guest has an address of its own and reaches the network under the pod's.
	// +optional
	Masquerade *InterfaceMasquerade `json:"masquerade,omitempty"`
	// The guest has the pod's address.
	// +optional
	Bridge *InterfaceBridge `json:"bridge,omitempty"`
	// The guest has a virtual function of a network card.
	// +optional
	SRIOV *InterfaceSRIOV `json:"sriov,omitempty"`
	// The guest's connections are made by passt, under the pod's address.
	// +optional
	PasstBinding *InterfacePasst `json:"passtBinding,omitempty"`
	// The interface is connected by a plug-in of the cluster's configuration.
	// +optional
	Binding *PluginBinding `json:"binding,omitempty"`
	// No longer supported, as in KubeVirt since 1.3.
	// +optional
	Slirp *DeprecatedBinding `json:"slirp,omitempty"`
	// No longer supported, as in KubeVirt since 1.3.
	// +optional
	Macvtap *DeprecatedBinding `json:"macvtap,omitempty"`
	// No longer supported, as in KubeVirt since 1.3: use passtBinding.
	// +optional
	Passt *DeprecatedBinding `json:"passt,omitempty"`
	// Ports of the guest that are reached at the pod. Without any, all are.
	// +optional
	Ports []Port `json:"ports,omitempty"`
	// Ranges of ports of the guest that are reached at the pod.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	PortRanges []PortRange `json:"portRanges,omitempty"`
	// MAC address, such as de:ad:00:00:be:af. Made with the VM if unset, and kept for its life.
	// +optional
	MACAddress string `json:"macAddress,omitempty"`
	// Place in the order in which the guest tries to boot, from 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	BootOrder *int64 `json:"bootOrder,omitempty"`
	// Address on the guest's PCI bus, such as 0000:81:01.0.
	// +optional
	PCIAddress string `json:"pciAddress,omitempty"`
	// What DHCP gives the guest beside its address.
	// +optional
	DHCPOptions *DHCPOptions `json:"dhcpOptions,omitempty"`
	// Tag that the guest finds the interface by in its metadata.
	// +optional
	Tag string `json:"tag,omitempty"`
	// Index that the guest can name the interface by.
	// +optional
	ACPIIndex int `json:"acpiIndex,omitempty"`
	// State of the link: up or down. absent removes the interface from the running guest.
	// +optional
	State InterfaceState `json:"state,omitempty"`
}

// InterfaceState is the state of an interface's link.
//
// +kubebuilder:validation:Enum="";up;down;absent
type InterfaceState string

// The states of an interface.
const (
	InterfaceUp     InterfaceState = "up"
	InterfaceDown   InterfaceState = "down"
	InterfaceAbsent InterfaceState = "absent"
)

// InterfaceMasquerade has no settings.
type InterfaceMasquerade struct{}

// InterfaceBridge has no settings.
type InterfaceBridge struct{}

// InterfaceSRIOV has no settings.
type InterfaceSRIOV struct{}

// InterfacePasst has no settings.
type InterfacePasst struct{}

// DeprecatedBinding is a way to connect an interface that is no longer supported.
type DeprecatedBinding struct{}

// PluginBinding is a plug-in that connects an interface.
type PluginBinding struct {
	// Name of the plug-in in the cluster's configuration.
	Name string `json:"name"`
}

// Port is a port of the guest.
type Port struct {
	// Name of the port, which Services refer to.
	// +optional
	Name string `json:"name,omitempty"`
	// TCP (the default) or UDP.
	// +optional
	Protocol string `json:"protocol,omitempty"`
	// Number of the port.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// PortRange is a range of ports of the guest.
//
// +kubebuilder:validation:XValidation:rule="self.start <= self.end",message="start has to be at most end"
type PortRange struct {
	// TCP or UDP.
	Protocol string `json:"protocol"`
	// First port.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Start int32 `json:"start"`
	// Last port.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	End int32 `json:"end"`
}

// DHCPOptions are what DHCP gives a guest beside its address.
type DHCPOptions struct {
	// Name of the file that the guest boots (option 67).
	// +optional
	BootFileName string `json:"bootFileName,omitempty"`
	// Server that the guest boots from (option 66).
	// +optional
	TFTPServerName string `json:"tftpServerName,omitempty"`
	// Addresses of time servers (option 42).
	// +optional
	NTPServers []string `json:"ntpServers,omitempty"`
	// Options for private use.
	// +optional
	PrivateOptions []DHCPPrivateOption `json:"privateOptions,omitempty"`
}

// DHCPPrivateOption is an option for private use.
type DHCPPrivateOption struct {
	// Number of the option, from 224 to 254.
	Option int `json:"option"`
	// Value of the option.
	Value string `json:"value"`
}

// Network is a network that an interface is connected to. Exactly one source is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.pod), has(self.multus), has(self.resourceClaim)].exists_one(x, x)",message="exactly one of pod, multus and resourceClaim has to be set"
type Network struct {
	// Name that the interface refers to.
	Name string `json:"name"`
	// The pod's network.
	// +optional
	Pod *PodNetwork `json:"pod,omitempty"`
	// A further network of the pod, made by Multus.
	// +optional
	Multus *MultusNetwork `json:"multus,omitempty"`
	// A network device that comes from a resource claim.
	// +optional
	ResourceClaim *ClaimRequest `json:"resourceClaim,omitempty"`
}

// PodNetwork is the pod's network.
type PodNetwork struct {
	// IPv4 network between guest and pod with masquerade. Defaults to 10.0.2.0/24.
	// +optional
	VMNetworkCIDR string `json:"vmNetworkCIDR,omitempty"`
	// IPv6 network between guest and pod with masquerade. Defaults to fd10:0:2::/120.
	// +optional
	VMIPv6NetworkCIDR string `json:"vmIPv6NetworkCIDR,omitempty"`
}

// MultusNetwork is a further network of the pod.
type MultusNetwork struct {
	// NetworkAttachmentDefinition of the network: a name, or a namespace and a name joined by /.
	NetworkName string `json:"networkName"`
	// Whether the network takes the place of the pod's own.
	// +optional
	Default bool `json:"default,omitempty"`
}
