package instance

import (
	"reflect"
	"strings"
	"testing"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/multus"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// blue is what network blue is in a pod.
const blue = "pod16477688c0e"

// onBlue is a VM whose second interface is on a network of Multus.
func onBlue(answer string, guest ...*nodev1.GuestInterface) scene.Scene {
	return scene.Full().Change(func(v *kubevirtv1.VirtualMachineInstance) {
		v.Spec.Domain.Devices.Interfaces = append(v.Spec.Domain.Devices.Interfaces, kubevirtv1.Interface{Name: "blue"})
		v.Spec.Networks = append(v.Spec.Networks, kubevirtv1.Network{Name: "blue", Multus: &kubevirtv1.MultusNetwork{NetworkName: "vlan"}})
	}).WithPod(scene.RunsSince(0), scene.Heard(scene.Running), scene.PodReady, scene.GuestSays, func(p *view.Pod) {
		p.Annotations[multus.AnnotationStatus] = answer
		s := p.Report.VM.Status
		s.EffectiveSpec.Networks = append(s.EffectiveSpec.Networks, &specv1.NetworkInterface{
			Name: "blue", Mac: "02:00:00:00:00:07",
			Backend: &specv1.NetworkInterface_Pod{Pod: &specv1.PodNetwork{Binding: "bridge", Interface: blue, LinkDown: true, Queues: 4}},
		})
		s.Guest.Interfaces = append(s.Guest.Interfaces[:2], guest...)
	})
}

// TestNetworksOfMultus: an interface has the pod's addresses only on the pod's default network,
// else those that Multus and the guest say.
func TestNetworksOfMultus(t *testing.T) {
	const answer = `[{"interface":"eth0","ips":["10.1.0.7"],"default":true},{"interface":"` + blue + `","ips":["192.0.2.7"],"mac":"02:00:00:00:00:08"}]`
	heardOf := &nodev1.GuestInterface{Name: "enp2s0", Mac: "02:00:00:00:00:07", Addresses: []string{"192.0.2.7", "fe80::7"}}
	want := kubevirtv1.InterfaceStatus{Name: "blue", MAC: "02:00:00:00:00:07", PodInterfaceName: blue, LinkState: "down", QueueCount: 4}
	for name, test := range map[string]struct {
		scene  scene.Scene
		change func(*kubevirtv1.InterfaceStatus)
	}{
		"no answer": {onBlue(""), func(s *kubevirtv1.InterfaceStatus) { s.InfoSource = "domain" }},
		"nonsense":  {onBlue("{"), func(s *kubevirtv1.InterfaceStatus) { s.InfoSource = "domain" }},
		"answer": {onBlue(answer), func(s *kubevirtv1.InterfaceStatus) {
			s.InfoSource, s.IPAddress, s.IPAddresses = "domain, multus-status", "192.0.2.7", []string{"192.0.2.7"}
		}},
		"guest agent": {onBlue(answer, heardOf), func(s *kubevirtv1.InterfaceStatus) {
			s.InfoSource, s.InterfaceName = "domain, guest-agent, multus-status", "enp2s0"
			s.IPAddress, s.IPAddresses = "192.0.2.7", []string{"192.0.2.7", "fe80::7"}
		}},
	} {
		want := want
		test.change(&want)
		got := statusOf(test.scene.View).Interfaces
		if len(got) != 2 {
			t.Errorf("%s: %d interfaces, want 2", name, len(got))
			continue
		}
		if !reflect.DeepEqual(got[1], want) {
			t.Errorf("%s: got %+v, want %+v", name, got[1], want)
		}
		if got[0].IPAddress != "10.1.0.7" || strings.Contains(got[0].InfoSource, "multus") {
			t.Errorf("%s: the first is %+v, want the pod's address and none of Multus'", name, got[0])
		}
	}
}
