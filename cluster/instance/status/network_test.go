package status

import (
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
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
		got := Of(test.scene.View).Interfaces
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

// TestPodNetworkAddresses: the first address is one at which the guest is reached, whatever
// its agent says; those behind a masquerade are not shown.
func TestPodNetworkAddresses(t *testing.T) {
	for binding, want := range map[string]string{
		"masquerade": "10.1.0.7 fd00::7 fe80::1 192.168.7.7",
		"bridge":     "10.1.0.7 fd00::7 10.0.2.2 fd10:0:2::2 fe80::1 192.168.7.7",
	} {
		s := scene.Full()
		status := s.Pod.Report.VM.Status
		status.EffectiveSpec.Networks[0].Backend = &specv1.NetworkInterface_Pod{Pod: &specv1.PodNetwork{Binding: binding}}
		status.Guest.Interfaces[1].Addresses = []string{"10.0.2.2", "fd10:0:2::2", "fe80::1", "10.1.0.7", "192.168.7.7"}
		got := Of(s.View).Interfaces[0]
		if all := strings.Join(got.IPAddresses, " "); all != want || got.IPAddress != "10.1.0.7" {
			t.Errorf("%s: %s, first %s, want %s", binding, all, got.IPAddress, want)
		}
		if c := condition.Find(Of(s.View).Conditions, condition.NetworkLimited); c != nil {
			t.Errorf("%s: %+v", binding, c)
		}
	}
}

// TestFirstInterface: the interface on the pod's network comes first wherever it is listed;
// nobody answers at its address while its link is down, and no address behind its masquerade is
// shown of an interface that the guest has made itself.
func TestFirstInterface(t *testing.T) {
	build := func(down bool) scene.Scene {
		s := scene.Full()
		s.Instance.Spec.Networks = append([]kubevirtv1.Network{{Name: "blue", Multus: &kubevirtv1.MultusNetwork{NetworkName: "vlan"}}}, s.Instance.Spec.Networks...)
		s.Instance.Spec.Domain.Devices.Interfaces = append([]kubevirtv1.Interface{{Name: "blue", MACAddress: "02:00:00:00:00:0b"}}, s.Instance.Spec.Domain.Devices.Interfaces...)
		status := s.Pod.Report.VM.Status
		status.EffectiveSpec.Networks[0].Backend = &specv1.NetworkInterface_Pod{Pod: &specv1.PodNetwork{Binding: "masquerade", LinkDown: down}}
		status.EffectiveSpec.Networks = append([]*specv1.NetworkInterface{{Name: "blue", Mac: "02:00:00:00:00:0b", Backend: &specv1.NetworkInterface_Pod{Pod: &specv1.PodNetwork{Binding: "bridge"}}}}, status.EffectiveSpec.Networks...)
		status.Guest.Interfaces[1].Addresses = []string{"10.0.2.2"}
		status.Guest.Interfaces = append(status.Guest.Interfaces, &nodev1.GuestInterface{Name: "br0", Mac: "02:00:00:00:00:0c", Addresses: []string{"10.0.2.2", "192.168.9.9"}})
		return s
	}
	got := Of(build(false).View).Interfaces
	if got[0].Name == "blue" || got[0].IPAddress != "10.1.0.7" {
		t.Errorf("the first interface is %s with %s", got[0].Name, got[0].IPAddress)
	}
	if last := got[len(got)-1]; last.InterfaceName != "br0" || last.IPAddress != "192.168.9.9" {
		t.Errorf("the guest's own interface is %+v", last)
	}
	if got := Of(build(true).View).Interfaces[0]; strings.Contains(strings.Join(got.IPAddresses, " "), "10.1.0.7") {
		t.Errorf("addresses behind a link that is down: %v", got.IPAddresses)
	}
}

// TestHostileGuest: what a guest says is bounded.
func TestHostileGuest(t *testing.T) {
	s := scene.Full()
	g := s.Pod.Report.VM.Status.Guest
	for range 1000 {
		g.Interfaces = append(g.Interfaces, &nodev1.GuestInterface{Name: strings.Repeat("é", 1000), Mac: strings.Repeat("m", 1000)})
		g.Interfaces[1].Addresses = append(g.Interfaces[1].Addresses, "2001:db8::"+string(rune('a'+len(g.Interfaces)%6)), "192.0.2."+string(rune('0'+len(g.Interfaces)%10)))
	}
	g.Os.Name = "\xff" + strings.Repeat("n", 1<<20)
	out, err := yaml.Marshal(Of(s.View))
	if err != nil || len(out) > 32<<10 {
		t.Errorf("a status of %d bytes, %v", len(out), err)
	}
}

func withoutHelper() scene.Scene {
	s := scene.Full()
	s.Pod.Report.VM.Status.NetworkLimited = "network.helper is false"
	return s
}
