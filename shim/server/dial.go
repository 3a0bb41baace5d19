package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// dialPatience is the most that dialling may take.
const dialPatience = 30 * time.Second

// dial connects to an address, by which an agent on the node reaches what only the pod does.
func (s *guests) dial(args *shim.DialTo) (work, error) {
	address, err := netip.ParseAddrPort(args.Address)
	switch {
	case err != nil:
		return nil, fault.New(shim.CodeInvalid, "address", "%q is no IP:PORT", args.Address)
	case args.Network != "tcp" && args.Network != "udp":
		return nil, fault.New(shim.CodeInvalid, "network", "%q: choose tcp or udp", args.Network)
	}
	s.mu.Lock()
	_, err = s.running()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return func() (any, error) {
		file, err := connectTo(args.Network, address, min(args.Within, dialPatience))
		if err != nil {
			return nil, fault.New(shim.CodeUnavailable, "", "%v", err)
		}
		return file, nil
	}, nil
}

// connectTo returns a socket that is connected; the file is the caller's.
func connectTo(network string, address netip.AddrPort, within time.Duration) (*os.File, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, address.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	filer, is := conn.(interface{ File() (*os.File, error) })
	if !is {
		return nil, fmt.Errorf("%s has no descriptor", network)
	}
	return filer.File()
}
