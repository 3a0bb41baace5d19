// Package driverkit is the server half of the driver protocol: with it a VMM that vmlet has
// never heard of becomes a program that vmlet runs VMs with. Its author implements
// vmm.VMM (the VMM without a VM, and the agent's monitor) and Driver (the shim's side of one
// that runs), and calls Main. It is the adapter that puts any vmm.VMM behind the protocol,
// too, which is how the protocol is tested with those that vmlet has.
//
// docs/adding-a-stack.md leads through it, docs/driver-protocol.md describes what goes over
// the socket. Packages that belong to the kit and keep their interfaces within a major
// version: this one, vmm, plan, spec, memory and the generated ones below proto.
package driverkit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/remote/wire"
)

// What a driver is on the shim's side: connected to a VMM that runs. The optional parts are
// those of package control.
type (
	Driver     = control.Driver
	Explainer  = control.Explainer
	Machine    = control.Machine
	Link       = control.Link
	Ending     = control.Ending
	Plugger    = control.Plugger
	Attachment = control.Attachment
)

// ErrVMMClosed is wrapped by a Machine's errors when the VMM has closed its socket.
var ErrVMMClosed = control.ErrMonitorClosed

// Stack is a VMM with its driver.
type Stack struct {
	// Version is the driver's own: "microvm-driver 1.2".
	Version string
	VMM     vmm.VMM
	Driver  Driver
	// Log takes what goes wrong; nil: slog's default.
	Log *slog.Logger
	// Versions of the protocol that it speaks; nil: the kit's. Tests have others.
	Versions []int
}

func (s *Stack) versions() []int {
	if s.Versions == nil {
		return []int{wire.Version}
	}
	return s.Versions
}

func (s *Stack) log() *slog.Logger {
	if s.Log == nil {
		return slog.Default()
	}
	return s.Log
}

// Main is the whole main function of a driver's program; it returns the exit code.
func Main(s Stack) int {
	if os.Getenv(wire.CookieVariable) != wire.CookieValue {
		fmt.Fprintf(os.Stderr, "%s is a driver of vmlet, which starts it: docs/adding-a-stack.md; vmlet-driver-conformance tries it\n", s.Version)
		return 2
	}
	if err := Run(context.Background(), s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Run serves what this process was started with until the connection of its parent
// ends.
func Run(ctx context.Context, s Stack) error {
	conn, err := inherited(wire.ConnectionFile, net.FileConn)
	if err != nil {
		return err
	}
	unix, is := conn.(*net.UnixConn)
	if !is {
		return fmt.Errorf("descriptor %d is no unix socket: vmlet starts this program with one", wire.ConnectionFile)
	}
	if os.Getenv(wire.ListenVariable) != "" {
		l, err := inherited(wire.ListenerFile, net.FileListener)
		if err != nil {
			return err
		}
		defer l.Close()
		go accept(ctx, l, s)
	}
	return Serve(ctx, unix, s)
}

func inherited[T any](fd uintptr, open func(*os.File) (T, error)) (T, error) {
	f := os.NewFile(fd, "inherited")
	defer f.Close()
	got, err := open(f)
	if err != nil {
		return got, fmt.Errorf("descriptor %d: %w: vmlet starts this program with a socket there", fd, err)
	}
	return got, nil
}

// maxAgents bounds the connections of agents: there is one, and one that takes its place.
const maxAgents = 8

func accept(ctx context.Context, l net.Listener, s Stack) {
	room := make(chan struct{}, maxAgents)
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		unix, is := conn.(*net.UnixConn)
		select {
		case room <- struct{}{}:
		default:
			is = false
		}
		if !is {
			conn.Close()
			continue
		}
		go func() {
			defer func() { <-room }()
			if err := Serve(ctx, unix, s); err != nil {
				s.log().Warn("connection of an agent ended", "error", err)
			}
		}()
	}
}

// Serve serves one connection until it ends or ctx does. The error is nil if the other side
// closed it.
func Serve(ctx context.Context, conn *net.UnixConn, s Stack) error {
	c := &connection{stack: &s, ready: make(chan struct{})}
	c.peer = wire.NewPeer(conn, c.handle)
	close(c.ready)
	select {
	case <-c.peer.Done():
	case <-ctx.Done():
		c.peer.Close()
	}
	err := c.peer.Err()
	c.peer.Wait()
	c.close()
	if errors.Is(err, wire.ErrLost) {
		return nil
	}
	return err
}

// connection is one that somebody made to this driver.
type connection struct {
	stack *Stack
	peer  *wire.Peer
	ready chan struct{} // closed when peer is set

	mu         sync.Mutex
	negotiated bool
	started    bool
	info       *vmm.Info
	machine    Machine
	received   []*os.File
	monitor    vmm.Monitor
}

func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.machine != nil {
		_ = c.machine.Close()
	}
	if c.monitor != nil {
		_ = c.monitor.Close()
	}
	c.forgetReceived()
}

// forgetReceived closes what came with the plan: it is there for the launch alone. c.mu is
// held.
func (c *connection) forgetReceived() {
	for _, f := range c.received {
		f.Close()
	}
	c.received = nil
}

// method answers a call.
type method func(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error)

// handle is the peer's handler.
func (c *connection) handle(ctx context.Context, call *wire.Call) (any, []*os.File, error) {
	<-c.ready
	if call.Method == "Negotiate" {
		return c.negotiate(call)
	}
	c.mu.Lock()
	negotiated := c.negotiated
	c.mu.Unlock()
	if !negotiated {
		return nil, nil, wire.Errorf(wire.CodeInvalid, "%.40q before Negotiate", call.Method)
	}
	serve := methods()[call.Method]
	if serve == nil {
		return nil, nil, wire.Errorf(wire.CodeUnsupported, "this driver has no %.40q", call.Method)
	}
	answer, files, err := serve(ctx, c, call)
	return answer, files, encoded(err)
}

func (c *connection) negotiate(call *wire.Call) (any, []*os.File, error) {
	var request wire.NegotiateRequest
	if err := call.Decode(&request); err != nil {
		return nil, nil, err
	}
	version, err := wire.Choose(c.stack.versions(), request.Versions)
	if err != nil {
		return nil, nil, wire.Errorf(wire.CodeUnsupported, "driver %s: %v", c.stack.Version, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.negotiated = true
	return wire.NegotiateResponse{Version: version, Features: c.stack.features(), Driver: c.stack.Version}, nil, nil
}

// features are those that hold for each VM.
func (s *Stack) features() (all []string) {
	add := func(has bool, feature string) {
		if has {
			all = append(all, feature)
		}
	}
	_, defaults := s.VMM.(vmm.Defaulter)
	_, validates := s.VMM.(vmm.Validator)
	_, refuses := s.VMM.(vmm.SaveRefuser)
	_, suspends := s.VMM.(vmm.Suspender)
	_, plugs := s.VMM.(vmm.Plugger)
	_, explains := s.Driver.(Explainer)
	add(defaults, wire.FeatureDefaults)
	add(validates, wire.FeatureValidate)
	add(refuses, wire.FeatureRefuseSave)
	add(suspends, wire.FeatureSuspend)
	add(plugs, wire.FeaturePlug)
	add(explains, wire.FeatureExplain)
	return all
}
