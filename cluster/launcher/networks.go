package launcher

import (
	"maps"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/multus"
)

// askMultus has Multus give the pod the instance's networks. Admission refuses instances that
// have both networks and such an annotation of their users'. Multus' answer is its own: nothing
// that an instance says of it reaches the pod.
func (l *launcher) askMultus(annotations map[string]string) error {
	delete(annotations, multus.AnnotationStatus)
	networks, err := multus.Annotations(l.vmi.Spec.Networks, l.vmi.Namespace, func(n *kubevirtv1.Network) string {
		return convert.InterfaceMAC(l.vmi, n)
	})
	maps.Copy(annotations, networks)
	return err
}
