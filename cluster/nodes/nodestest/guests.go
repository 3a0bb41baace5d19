package nodestest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// aliveEvery is how often a client may ask whether the agent is alive, as of a real one.
const aliveEvery = 5 * time.Second

// Guests is an agent of VMs that run, whose guests answer. It notes what it is asked for. Its
// methods may be called concurrently.
type Guests struct {
	nodev1.UnimplementedNodeServiceServer
	// State of all VMs.
	State nodev1.State
	// Says is what a guest's agent says; nil: there is none.
	Says *nodev1.GetGuestResponse
	// Floods: consoles print without end; else they repeat what is typed.
	Floods bool
	// Display: the VMs have one, which somebody uses.
	Display bool
	// Pictures: a screenshot waits for what comes here after its first part, an error or nothing;
	// nil: it does not wait.
	Pictures chan error
	// Ports are the guests'.
	Ports map[uint32]bool

	mu       sync.Mutex
	calls    []string
	consoles map[string]context.CancelCauseFunc
	ended    int
}

// Calls are what was asked for, with the VM's name.
func (g *Guests) Calls() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls)
}

// Ended is how many consoles have ended.
func (g *Guests) Ended() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ended
}

func (g *Guests) note(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, fmt.Sprintf(format, args...))
}

// GetVM has the state.
func (g *Guests) GetVM(_ context.Context, r *nodev1.GetVMRequest) (*nodev1.GetVMResponse, error) {
	return &nodev1.GetVMResponse{Vm: &nodev1.VirtualMachine{Status: &nodev1.VirtualMachineStatus{State: g.State}}}, nil
}

// PauseVM is noted.
func (g *Guests) PauseVM(_ context.Context, r *nodev1.PauseVMRequest) (*nodev1.PauseVMResponse, error) {
	g.note("pause %s", r.GetName())
	return &nodev1.PauseVMResponse{}, nil
}

// ResumeVM is noted.
func (g *Guests) ResumeVM(_ context.Context, r *nodev1.ResumeVMRequest) (*nodev1.ResumeVMResponse, error) {
	g.note("resume %s", r.GetName())
	return &nodev1.ResumeVMResponse{}, nil
}

// ResetVM is noted.
func (g *Guests) ResetVM(_ context.Context, r *nodev1.ResetVMRequest) (*nodev1.ResetVMResponse, error) {
	g.note("reset %s", r.GetName())
	return &nodev1.ResetVMResponse{}, nil
}

// RebootVM is noted.
func (g *Guests) RebootVM(_ context.Context, r *nodev1.RebootVMRequest) (*nodev1.RebootVMResponse, error) {
	g.note("reboot %s", r.GetName())
	return &nodev1.RebootVMResponse{}, nil
}

// RenewVM is noted.
func (g *Guests) RenewVM(_ context.Context, r *nodev1.RenewVMRequest) (*nodev1.RenewVMResponse, error) {
	g.note("renew %s", r.GetName())
	return &nodev1.RenewVMResponse{Result: &nodev1.RenewResult{StoppedUs: 7000, VersionBefore: "7.2.0", Version: "10.0.2"}}, nil
}

// FreezeGuest needs the guest's agent.
func (g *Guests) FreezeGuest(_ context.Context, r *nodev1.FreezeGuestRequest) (*nodev1.FreezeGuestResponse, error) {
	if err := g.silent(); err != nil {
		return nil, err
	}
	g.note("freeze %s %d", r.GetName(), r.GetTimeoutMs())
	return &nodev1.FreezeGuestResponse{}, nil
}

// ThawGuest needs the guest's agent.
func (g *Guests) ThawGuest(_ context.Context, r *nodev1.ThawGuestRequest) (*nodev1.ThawGuestResponse, error) {
	if err := g.silent(); err != nil {
		return nil, err
	}
	g.note("thaw %s", r.GetName())
	return &nodev1.ThawGuestResponse{}, nil
}

// GetGuest is what the guest's agent says.
func (g *Guests) GetGuest(context.Context, *nodev1.GetGuestRequest) (*nodev1.GetGuestResponse, error) {
	return g.Says, g.silent()
}

func (g *Guests) silent() error {
	if g.Says == nil {
		return status.Error(codes.FailedPrecondition, "the guest's agent is not connected")
	}
	return nil
}

// TakeScreenshot sends a picture in two parts.
func (g *Guests) TakeScreenshot(r *nodev1.TakeScreenshotRequest, stream grpc.ServerStreamingServer[nodev1.TakeScreenshotResponse]) error {
	g.note("screenshot %s %v", r.GetName(), r.GetMovePointer())
	part := func(b []byte) error { return stream.Send(&nodev1.TakeScreenshotResponse{Data: b}) }
	if err := part([]byte("\x89PNG")); err != nil {
		return err
	}
	if g.Pictures != nil {
		if err := errors.Join(part(make([]byte, 64<<10)), <-g.Pictures); err != nil {
			return err
		}
	}
	return part([]byte("..."))
}

// AttachConsole is one client's at a time, if that asks for it.
func (g *Guests) AttachConsole(stream grpc.BidiStreamingServer[nodev1.AttachConsoleRequest, nodev1.AttachConsoleResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	g.mu.Lock()
	if before := g.consoles[first.GetName()]; before != nil && first.GetSharing() == nodev1.Sharing_SHARING_TAKE_OVER {
		before(status.Error(codes.Aborted, "another client has taken over"))
	}
	if g.consoles == nil {
		g.consoles = make(map[string]context.CancelCauseFunc)
	}
	g.consoles[first.GetName()] = end
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.ended++
	}()
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	keys := make(chan []byte)
	typed := keys
	go func() {
		defer close(keys)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case keys <- m.GetData():
			case <-ctx.Done():
				return
			}
		}
	}()
	for flood := make([]byte, 4<<10); ; {
		if g.Floods {
			if err := stream.Send(&nodev1.AttachConsoleResponse{Data: flood}); err != nil || ctx.Err() != nil {
				return context.Cause(ctx)
			}
			continue
		}
		select {
		case b, more := <-typed:
			if !more { // what the guest prints still comes
				typed = nil
				continue
			}
			if err := stream.Send(&nodev1.AttachConsoleResponse{Data: b}); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// AttachDisplay is refused unless there is a display: it repeats what is sent. One that is in use
// is left to its client, if a client asks for that.
func (g *Guests) AttachDisplay(stream grpc.BidiStreamingServer[nodev1.AttachDisplayRequest, nodev1.AttachDisplayResponse]) error {
	first, err := stream.Recv()
	switch {
	case err != nil:
		return err
	case !g.Display:
		return status.Error(codes.FailedPrecondition, "the VM has no display")
	case first.GetSharing() == nodev1.Sharing_SHARING_PRESERVE:
		return status.Error(codes.AlreadyExists, "another client is connected")
	}
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if err != nil { // what is drawn still comes
			<-stream.Context().Done()
			return context.Cause(stream.Context())
		}
		if err := stream.Send(&nodev1.AttachDisplayResponse{Data: m.GetData()}); err != nil {
			return err
		}
	}
}

// DialGuest repeats what is sent to a port that is there.
func (g *Guests) DialGuest(stream grpc.BidiStreamingServer[nodev1.DialGuestRequest, nodev1.DialGuestResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	g.note("dial %s %s %d", first.GetName(), first.GetProtocol(), first.GetPort())
	if !g.Ports[first.GetPort()] {
		return status.Error(codes.Unavailable, "connection refused")
	}
	if err := stream.Send(&nodev1.DialGuestResponse{}); err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if err == io.EOF && first.GetProtocol() == "udp" { // datagrams have no end
			<-stream.Context().Done()
			return context.Cause(stream.Context())
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&nodev1.DialGuestResponse{Data: m.GetData()}); err != nil {
			return err
		}
	}
}

// Serve serves the agent at an address of this machine until stop is called.
func (g *Guests) Serve(address string, config *tls.Config) (bound string, stop func(), err error) {
	return serve(g, address, config)
}

func serve(api nodev1.NodeServiceServer, address string, config *tls.Config) (bound string, stop func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", nil, err
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: aliveEvery}))
	nodev1.RegisterNodeServiceServer(s, api)
	go s.Serve(l)
	return l.Addr().String(), s.Stop, nil
}
