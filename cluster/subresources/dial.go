package subresources

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

const (
	// dialPatience is how long a guest may take to answer, as with an agent.
	dialPatience = 10 * time.Second
	// datagramSize is more than a datagram can have, in bytes.
	datagramSize = 64 << 10
)

// hasPodAddress: the guest has the address of its pod, so that nobody reaches it from inside of
// that. There is one interface on the pod's network at most.
func hasPodAddress(vmi *kubevirtv1.VirtualMachineInstance) bool {
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		if slices.ContainsFunc(vmi.Spec.Networks, func(n kubevirtv1.Network) bool {
			return n.Name == nic.Name && (n.Pod != nil || n.Multus != nil && n.Multus.Default)
		}) {
			return nic.Bridge != nil
		}
	}
	return false
}

// dialPod connects to a port of a guest that has its pod's address, over the pods' network.
func (s *Server) dialPod(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance, protocol string, port uint32) (*upstream, error) {
	pod, err := s.pod(ctx, vmi)
	if err != nil {
		return nil, err
	}
	address, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil || !s.outside(address.Unmap()) {
		return nil, dialError(fmt.Errorf("its pod has the address %q", bounded(pod.Status.PodIP)))
	}
	dialer := net.Dialer{Timeout: dialPatience}
	conn, err := dialer.DialContext(ctx, protocol, netip.AddrPortFrom(address.Unmap(), uint16(port)).String())
	if err != nil {
		return nil, dialError(err)
	}
	context.AfterFunc(ctx, func() { conn.Close() }) // the stream ends with ctx
	return upstreamOf(conn), nil
}

// outside are addresses beyond this pod and its node: a node says which its pods have.
func outside(a netip.Addr) bool {
	return !a.IsLoopback() && !a.IsUnspecified() && !a.IsLinkLocalUnicast() && !a.IsMulticast() && a.Zone() == ""
}

func upstreamOf(conn net.Conn) *upstream {
	half, isTCP := conn.(*net.TCPConn)
	size := datagramSize
	if isTCP {
		size = pieceSize
	}
	buf := make([]byte, size)
	return &upstream{
		send: func(b []byte) error {
			_, err := conn.Write(b)
			return err
		},
		receive: func() ([]byte, error) {
			n, err := conn.Read(buf)
			if n > 0 {
				err = nil // comes again
			}
			return buf[:n], err
		},
		close: func() error {
			if isTCP {
				return half.CloseWrite()
			}
			return nil
		},
	}
}
