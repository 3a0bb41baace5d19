package subresources

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// bridged gives the instance interfaces on networks, in that order: bridge and masquerade on the
// pod's (or, with "default", on the one in its place), "other" a bridge on another one.
func bridged(interfaces ...string) changed {
	return func(_ *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
		for i, kind := range interfaces {
			nic, on := kubevirtv1.Interface{Name: fmt.Sprint("net", i)}, kubevirtv1.Network{Name: fmt.Sprint("net", i)}
			switch kind {
			case "masquerade":
				nic.Masquerade, on.Pod = &kubevirtv1.InterfaceMasquerade{}, &kubevirtv1.PodNetwork{}
			case "bridge":
				nic.Bridge, on.Pod = &kubevirtv1.InterfaceBridge{}, &kubevirtv1.PodNetwork{}
			default:
				nic.Bridge, on.Multus = &kubevirtv1.InterfaceBridge{}, &kubevirtv1.MultusNetwork{NetworkName: "net", Default: kind == "default"}
			}
			vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, nic)
			vmi.Spec.Networks = append(vmi.Spec.Networks, on)
		}
	}
}

// TestDialPod: a guest that has its pod's address is dialled there, any other by the agent.
func TestDialPod(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer tcp.Close()
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer udp.Close()
	go func() {
		for buf := make([]byte, datagramSize); ; {
			n, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(buf[:n], from)
		}
	}()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	closed.Close()
	overTCP, overUDP := port(tcp.Addr())+"/tcp", port(udp.LocalAddr())+"/udp"
	for name, c := range map[string]struct {
		interfaces []string
		address    string
		port       string
		agent      bool
		code       int
	}{
		"tcp":                      {[]string{"other", "bridge"}, "127.0.0.1", overTCP, false, 0},
		"udp":                      {[]string{"bridge"}, "127.0.0.1", overUDP, false, 0},
		"in place of the pod's":    {[]string{"default"}, "127.0.0.1", overTCP, false, 0},
		"IPv4 in IPv6":             {[]string{"bridge"}, "::ffff:127.0.0.1", overTCP, false, 0},
		"masquerade":               {[]string{"masquerade", "other"}, "127.0.0.1", "22", true, 0},
		"a bridge elsewhere":       {[]string{"other"}, "127.0.0.1", "22", true, 0},
		"nobody listens":           {[]string{"bridge"}, "127.0.0.1", port(closed.Addr()), false, 500},
		"an address that is no":    {[]string{"bridge"}, "169.254.169.254", overTCP, false, 500},
		"no address":               {[]string{"bridge"}, "", overTCP, false, 500},
		"a name for an address":    {[]string{"bridge"}, "localhost", overTCP, false, 500},
		"masquerade, nobody there": {[]string{"masquerade"}, "127.0.0.1", overTCP, true, 500},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, bridged(c.interfaces...))
			w.outside = func(a netip.Addr) bool { return a == netip.MustParseAddr("127.0.0.1") }
			p := &corev1.Pod{}
			must(t, w.Get(t.Context(), client.ObjectKeyFromObject(pod()), p))
			p.Status.PodIP = c.address
			must(t, w.Status().Update(t.Context(), p))
			conn, answer, err := w.dial(t, "virtualmachineinstances/web/portforward/"+c.port)
			if asked := len(w.guests.Calls()) > 0; asked != c.agent {
				t.Errorf("the agent was asked: %t, want %t", asked, c.agent)
			}
			if c.code != 0 {
				if err == nil || answer == nil || answer.StatusCode != c.code {
					t.Errorf("%v, %+v, want %d", err, answer, c.code)
				}
				return
			}
			must(t, err)
			must(t, conn.WriteMessage(websocket.BinaryMessage, []byte("hello")))
			if _, b, err := conn.ReadMessage(); string(b) != "hello" || err != nil {
				t.Errorf("read %q, %v", b, err)
			}
			if strings.HasSuffix(c.port, "udp") {
				return
			}
			must(t, conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")))
			if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
				t.Errorf("after its end: %v, want a normal closure", err)
			}
		})
	}
}

func port(a net.Addr) string {
	_, port, _ := net.SplitHostPort(a.String())
	return port
}

// TestOutside: a node does not make vmlet-api dial itself, or its node.
func TestOutside(t *testing.T) {
	for address, want := range map[string]bool{
		"10.1.2.3": true, "192.0.2.1": true, "fd00::1": true, "2001:db8::1": true,
		"127.0.0.1": false, "127.9.9.9": false, "::1": false, "0.0.0.0": false, "::": false,
		"169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false, "fd00::1%eth0": false, "224.0.0.1": false, "ff02::1": false,
	} {
		if got := outside(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %t, want %t", address, got, want)
		}
	}
}
