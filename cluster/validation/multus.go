package validation

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/multus"
)

// multusNetwork wants the name of a NetworkAttachmentDefinition.
func multusNetwork(n *kubevirtv1.MultusNetwork, at *field.Path) (faults field.ErrorList) {
	if n == nil {
		return nil
	}
	namespace, name := multus.Split(n.NetworkName)
	if namespace == "" && name != n.NetworkName || len(validation.IsDNS1123Subdomain(name)) > 0 ||
		namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0 {
		faults = append(faults, field.Invalid(at, short(n.NetworkName), "want the name of a NetworkAttachmentDefinition, such as vlan-7, or a namespace and a name, such as networks/vlan-7"))
	}
	return faults
}

// binding wants one that the interface's network can have.
func (r Request) binding(nic kubevirtv1.Interface, networks []kubevirtv1.Network, at *field.Path) (faults field.ErrorList) {
	i := slices.IndexFunc(networks, func(n kubevirtv1.Network) bool { return n.Name == nic.Name })
	if i < 0 {
		return nil // said already
	}
	switch onMultus := networks[i].Multus != nil; {
	case onMultus && nic.Masquerade != nil:
		faults = append(faults, field.Forbidden(at.Child("masquerade"), "only the pod's own network can have it: use bridge"))
	case onMultus && nic.Bridge == nil && !otherwiseBound(nic):
		faults = append(faults, field.Required(at.Child("bridge"), "an interface on a network of Multus says how it is connected: add bridge: {}"))
	case !onMultus && nic.Bridge != nil && !r.Configuration.PermitBridge:
		faults = append(faults, field.Forbidden(at.Child("bridge"), "the KubeVirt object doesn't permit bridge on the pod network (permitBridgeInterfaceOnPodNetwork): use masquerade"))
	}
	return faults
}

// otherwiseBound: the interface is connected in a way that its row in the table refuses.
func otherwiseBound(nic kubevirtv1.Interface) bool {
	return nic.SRIOV != nil || nic.PasstBinding != nil || nic.Binding != nil || nic.Slirp != nil || nic.Macvtap != nil || nic.Passt != nil
}

// multusAnnotations refuses annotations in whose place the pod has those of the instance's
// networks: Multus could not tell them apart.
func multusAnnotations(all map[string]string, networks []kubevirtv1.Network, at *field.Path) (faults field.ErrorList) {
	for _, row := range []struct {
		key, note string
		asks      func(*kubevirtv1.MultusNetwork) bool
	}{
		{multus.AnnotationNetworks, "the pod's is made of the networks with multus: add a network and an interface for each one in the annotation, and remove it", func(n *kubevirtv1.MultusNetwork) bool { return !n.Default }},
		{multus.AnnotationDefault, "the pod's is that of the network with multus.default: remove the annotation", func(n *kubevirtv1.MultusNetwork) bool { return n.Default }},
	} {
		_, set := all[row.key]
		if set && slices.ContainsFunc(networks, func(n kubevirtv1.Network) bool { return n.Multus != nil && row.asks(n.Multus) }) {
			faults = append(faults, field.Forbidden(at.Key(row.key), row.note))
		}
	}
	return faults
}
