// Package multus speaks the annotations of Multus, which gives pods further networks: what a
// VM's pod asks for, and what Multus says that it has got. It is pure, and knows nothing of
// specifications. Start reading at Annotations.
package multus

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// The annotations of pods.
const (
	// AnnotationNetworks asks for further networks.
	AnnotationNetworks = "k8s.v1.cni.cncf.io/networks"
	// AnnotationDefault asks for a network in the place of the cluster's.
	AnnotationDefault = "v1.multus-cni.io/default-network"
	// AnnotationStatus is Multus' answer.
	AnnotationStatus = "k8s.v1.cni.cncf.io/network-status"
)

// defaultInterface is the pod's on its default network.
const defaultInterface = "eth0"

// Of a hash, an interface's name has as many digits as KubeVirt gives it: with "pod" before
// them they are one less than Linux has room for.
const hashDigits = 11

// Interface is the name that a VM's network has in the VM's pod, as KubeVirt names it.
func Interface(network *kubevirtv1.Network) string {
	if IsDefault(network) {
		return defaultInterface
	}
	sum := sha256.Sum256([]byte(network.Name))
	return "pod" + hex.EncodeToString(sum[:])[:hashDigits]
}

// IsDefault says whether a network is the pod's default one, which has the pod's addresses.
func IsDefault(network *kubevirtv1.Network) bool {
	return network.Multus == nil || network.Multus.Default
}

// attachment is an element of the annotation's list.
type attachment struct {
	Interface string `json:"interface"`
	MAC       string `json:"mac,omitempty"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// Annotations are what the pod of a VM asks Multus for, by key; mac is the address that the
// guest has on a network. Names without a namespace are of the VM's own, but that
// of the default network, which Multus looks for in its own namespace, as with KubeVirt.
func Annotations(networks []kubevirtv1.Network, namespace string, mac func(*kubevirtv1.Network) string) (map[string]string, error) {
	annotations := make(map[string]string)
	var attachments []attachment
	for i := range networks {
		n := &networks[i]
		switch {
		case n.Multus == nil:
		case n.Multus.Default:
			annotations[AnnotationDefault] = n.Multus.NetworkName
		default:
			a := attachment{Interface: Interface(n), MAC: mac(n)}
			a.Namespace, a.Name = Split(n.Multus.NetworkName)
			if a.Namespace == "" {
				a.Namespace = namespace
			}
			attachments = append(attachments, a)
		}
	}
	if attachments == nil {
		return annotations, nil
	}
	text, err := json.Marshal(attachments)
	if err != nil {
		return nil, fmt.Errorf("networks of Multus: %w", err)
	}
	annotations[AnnotationNetworks] = string(text)
	return annotations, nil
}

// Split returns the namespace, empty if it names none, and the name of a network.
func Split(networkName string) (namespace, name string) {
	if namespace, name, both := strings.Cut(networkName, "/"); both {
		return namespace, name
	}
	return "", networkName
}
