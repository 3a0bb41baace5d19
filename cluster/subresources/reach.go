package subresources

import (
	"context"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

const (
	// acceptPatience is how long an agent may take to say that a console is attached. One of an
	// earlier version says nothing before the guest does.
	acceptPatience = 5 * time.Second
	// maxDatagram is the most that a datagram can have, in bytes.
	maxDatagram = 65507
)

// console joins the client with the guest's serial console. virtctl asks again each second while
// the answer is 400.
func (s *Server) console(c *call) error {
	vmi, err := s.instance(c)
	if err != nil {
		return err
	}
	if a := vmi.Spec.Domain.Devices.AutoattachSerialConsole; a != nil && !*a {
		return badRequest("No serial consoles are present.")
	}
	if err := streamable(vmi); err != nil {
		return err
	}
	return s.stream(c, false, func(ctx context.Context) (*upstream, error) {
		return s.attach(ctx, vmi, func(g *guest) (*upstream, func() error, error) {
			stream, err := g.agent.AttachConsole(ctx)
			if err != nil {
				return nil, nil, err
			}
			up := &upstream{
				send:    func(b []byte) error { return stream.Send(&nodev1.AttachConsoleRequest{Data: b}) },
				receive: func() ([]byte, error) { m, err := stream.Recv(); return m.GetData(), err },
				close:   stream.CloseSend,
			}
			accepted := func() error { return awaitHeader(stream, up) }
			return up, accepted, stream.Send(&nodev1.AttachConsoleRequest{Name: g.name, Sharing: nodev1.Sharing_SHARING_TAKE_OVER, SkipBacklog: true})
		})
	})
}

// streamable: its guest runs, or will.
func streamable(vmi *kubevirtv1.VirtualMachineInstance) error {
	switch vmi.Status.Phase {
	case kubevirtv1.PhaseRunning:
		return nil
	case kubevirtv1.PhaseFailed:
		return instanceConflict(vmi.Name, "VMI has failed")
	}
	return badRequest("VMI is not running, but %s", phaseOf(vmi))
}

// displayed reads an instance that has a display.
func (s *Server) displayed(c *call) (*kubevirtv1.VirtualMachineInstance, error) {
	vmi, err := s.instance(c)
	if err != nil {
		return nil, err
	}
	if a := vmi.Spec.Domain.Devices.AutoattachGraphicsDevice; a != nil && !*a {
		return nil, badRequest("No graphics devices are present.")
	}
	return vmi, streamable(vmi)
}

// vnc joins the client with the guest's display.
func (s *Server) vnc(c *call) error {
	vmi, err := s.displayed(c)
	if err != nil {
		return err
	}
	sharing := nodev1.Sharing_SHARING_TAKE_OVER
	if keep, _ := strconv.ParseBool(c.URL.Query().Get("preserveSession")); keep { // anything else is no
		sharing = nodev1.Sharing_SHARING_PRESERVE
	}
	return s.stream(c, false, func(ctx context.Context) (*upstream, error) {
		return s.attach(ctx, vmi, func(g *guest) (*upstream, func() error, error) {
			stream, err := g.agent.AttachDisplay(ctx)
			if err != nil {
				return nil, nil, err
			}
			up := &upstream{
				send:    func(b []byte) error { return stream.Send(&nodev1.AttachDisplayRequest{Data: b}) },
				receive: func() ([]byte, error) { m, err := stream.Recv(); return m.GetData(), err },
				close:   stream.CloseSend,
			}
			accepted := func() error { return displayError(awaitHeader(stream, up)) }
			return up, accepted, stream.Send(&nodev1.AttachDisplayRequest{Name: g.name, Sharing: sharing})
		})
	})
}

// displayError: a VM without a display is asked for in vain, and one that is in use may be free
// later.
func displayError(err error) error {
	switch s, _ := status.FromError(err); s.Code() {
	case codes.FailedPrecondition:
		return badRequest("%s", bounded(s.Message()))
	case codes.AlreadyExists:
		return apierrors.NewServiceUnavailable(bounded(s.Message()))
	}
	return err
}

// attach opens a stream to an instance's VM, and returns once it is accepted.
func (s *Server) attach(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance, open func(g *guest) (up *upstream, accepted func() error, err error)) (*upstream, error) {
	g, err := s.guest(ctx, vmi)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, g.done) // the stream ends with ctx
	up, accepted, err := open(g)
	if err == nil {
		err = accepted()
	}
	return up, agentError(vmi.Name, err)
}

// awaitHeader waits until the agent has accepted a stream, or refused it.
func awaitHeader(stream grpc.ClientStream, up *upstream) error {
	got := make(chan error, 1)
	go func() {
		header, err := stream.Header()
		if err == nil && header == nil { // it has ended, and receiving says why
			_, err = up.receive()
		}
		got <- err
	}()
	select {
	case err := <-got:
		return err
	case <-time.After(acceptPatience):
		return nil
	}
}

// forwardMachine reaches a port of the guest that a VM runs.
func (s *Server) forwardMachine(c *call) error {
	vm, err := s.machine(c)
	if err != nil {
		return err
	}
	if !vm.Status.Created {
		return conflict(vm.Name, "VM is not running: start it")
	}
	return s.forwardInstance(c)
}

// forwardInstance reaches a port of a guest.
func (s *Server) forwardInstance(c *call) error {
	protocol, port, err := portOf(c.info.Parts)
	if err != nil {
		return err
	}
	vmi, err := s.instance(c)
	if err != nil {
		return err
	}
	if err := forwardable(vmi); err != nil {
		return err
	}
	return s.stream(c, protocol == "udp", func(ctx context.Context) (*upstream, error) {
		if hasPodAddress(vmi) {
			return s.dialPod(ctx, vmi, protocol, port)
		}
		return s.attach(ctx, vmi, func(g *guest) (*upstream, func() error, error) {
			stream, err := g.agent.DialGuest(ctx)
			if err != nil {
				return nil, nil, err
			}
			up := &upstream{
				send:    func(b []byte) error { return stream.Send(&nodev1.DialGuestRequest{Data: b}) },
				receive: func() ([]byte, error) { m, err := stream.Recv(); return m.GetData(), err },
				close:   stream.CloseSend,
			}
			accepted := func() error {
				_, err := stream.Recv()
				return dialError(err)
			}
			return up, accepted, stream.Send(&nodev1.DialGuestRequest{Name: g.name, Protocol: protocol, Port: port})
		})
	})
}

// dialError: as KubeVirt, a guest that does not answer is an internal error.
func dialError(err error) error {
	s, _ := status.FromError(err)
	switch s.Code() {
	case codes.OK, codes.Unimplemented, codes.InvalidArgument:
		return err
	}
	return internal("dialling the guest: %s", bounded(s.Message()))
}

func forwardable(vmi *kubevirtv1.VirtualMachineInstance) error {
	switch {
	case isTrue(vmi.Status.Conditions, kubevirtv1.ConditionPaused):
		return instanceConflict(vmi.Name, "VMI is paused")
	case vmi.Status.Phase != kubevirtv1.PhaseRunning:
		return instanceConflict(vmi.Name, "VMI is not running, but %s", phaseOf(vmi))
	case len(vmi.Status.Interfaces) == 0:
		return badRequest("no network interfaces are present")
	}
	return nil
}

// portOf reads "portforward/PORT" and "portforward/PORT/PROTOCOL" at a path's end.
func portOf(parts []string) (protocol string, port uint32, err error) {
	if len(parts) < 4 || len(parts) > 5 {
		return "", 0, badRequest("want %s/PORT or %s/PORT/PROTOCOL", portForward, portForward)
	}
	n, err := strconv.ParseUint(parts[3], 10, 16)
	if err != nil || n == 0 {
		return "", 0, badRequest("port %q: choose one from 1 to 65535", bounded(parts[3]))
	}
	protocol = "tcp"
	if len(parts) == 5 {
		protocol = strings.ToLower(parts[4])
	}
	if protocol != "tcp" && protocol != "udp" {
		return "", 0, badRequest("protocol %q: choose tcp or udp", bounded(protocol))
	}
	return protocol, uint32(n), nil
}
