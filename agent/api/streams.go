package api

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/logs"
	"github.com/vmlet/vmlet/agent/vm"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/grpc"
)

const (
	// eventBuffer is how many events may wait for a caller who is slow.
	eventBuffer = 256
	// consoleBacklog is how many bytes of what was printed before come first:
	// a screenful or two.
	consoleBacklog = 8 << 10
	// pieceSize is how many bytes of a console or a log go into one message.
	pieceSize = 32 << 10
	// datagramSize is more than a datagram can have.
	datagramSize = 64 << 10
)

// WatchEvents sends the last events and then, with follow, those that come.
func (s *NodeService) WatchEvents(r *nodev1.WatchEventsRequest, stream grpc.ServerStreamingServer[nodev1.WatchEventsResponse]) error {
	// Before the subscription: a VM that comes in the place of this one has another id, or is noticed below.
	id, err := s.watchedID(stream.Context(), r.GetName())
	if err != nil {
		return err
	}
	sub := s.VMs.Subscribe(r.GetName(), r.GetTail(), eventBuffer)
	defer sub.Close()
	if r.GetFollow() {
		// The caller learns that the subscription stands: it gets what
		// happens from now on.
		if err := stream.SendHeader(nil); err != nil {
			return err
		}
	}
	for {
		items := sub.Take()
		if _, err := s.watchedID(stream.Context(), r.GetName()); err != nil {
			return err
		}
		for _, item := range items {
			if id != "" && item.Event.GetVmId() != id {
				continue
			}
			if err := stream.Send(&nodev1.WatchEventsResponse{Event: item.Event, Dropped: item.Dropped}); err != nil {
				return err
			}
		}
		if !r.GetFollow() {
			return nil
		}
		select {
		case <-sub.Ready():
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.VMs.Context().Done():
			return errLeaving
		}
	}
}

// watchedID is the id that the VM has of a call which is about a pod's alone, empty of any other call. It is NOT_FOUND if the
// pod's VM is not there any more.
func (s *NodeService) watchedID(ctx context.Context, name string) (string, error) {
	if name == "" || !vm.OfOnePod(ctx) {
		return "", nil
	}
	m, err := s.VMs.Get(ctx, name)
	if err != nil {
		return "", err
	}
	return m.Snapshot().GetId(), nil
}

// ReadLogs sends a log and then, with follow, what is added to it.
func (s *NodeService) ReadLogs(r *nodev1.ReadLogsRequest, stream grpc.ServerStreamingServer[nodev1.ReadLogsResponse]) error {
	m, err := s.VMs.Get(stream.Context(), r.GetName())
	if err != nil {
		return err
	}
	var file string
	switch r.GetLog() {
	case "", "console":
		file = shim.ConsoleLogName
	case "vmm":
		file = shim.VMMLogName
	case "shim":
		file = shim.ShimLogName
	default:
		return fault.Invalid("log", "%q: choose console, vmm or shim", r.GetLog())
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.VMs.Context(), func() { cancel(errLeaving) })()
	err = logs.Read(ctx, logs.Options{
		Dir: m.Placement().StateDir(), Name: file,
		TailLines: int(r.GetTailLines()), Follow: r.GetFollow(), PieceSize: pieceSize,
	}, func(b []byte) error { return stream.Send(&nodev1.ReadLogsResponse{Data: b}) })
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		return cause
	}
	return err
}

// AttachConsole joins the caller and the serial console until either ends.
func (s *NodeService) AttachConsole(stream grpc.BidiStreamingServer[nodev1.AttachConsoleRequest, nodev1.AttachConsoleResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	backlog := consoleBacklog
	if first.GetSkipBacklog() {
		backlog = 0
	}
	conn, err := s.VMs.Guests.Console(stream.Context(), first.GetName(), backlog)
	if err != nil {
		return err
	}
	ctx, leave, err := s.consoles.take(stream.Context(), first.GetName(), first.GetSharing())
	if err != nil {
		conn.Close()
		return err
	}
	defer leave()
	// The header says that the console is attached: it may print nothing for long.
	if err := stream.SendHeader(nil); err != nil {
		conn.Close()
		return err
	}
	return s.join(ctx, conn, pieceSize, first.GetData(),
		func() ([]byte, error) {
			r, err := stream.Recv()
			return r.GetData(), err
		},
		func(b []byte) error { return stream.Send(&nodev1.AttachConsoleResponse{Data: b}) })
}

// DialGuest joins the caller and a port of the guest until either ends.
func (s *NodeService) DialGuest(stream grpc.BidiStreamingServer[nodev1.DialGuestRequest, nodev1.DialGuestResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	conn, err := s.VMs.Guests.DialGuest(stream.Context(), first.GetName(), first.GetProtocol(), first.GetPort())
	if err != nil {
		return err
	}
	if err := stream.Send(&nodev1.DialGuestResponse{}); err != nil {
		conn.Close()
		return err
	}
	return s.join(stream.Context(), conn, datagramSize, first.GetData(),
		func() ([]byte, error) {
			r, err := stream.Recv()
			return r.GetData(), err
		},
		func(b []byte) error { return stream.Send(&nodev1.DialGuestResponse{Data: b}) })
}

// join passes on what the caller sends and what the connection gives, piece by piece, until the
// connection ends, or ctx or the agent does. It closes the connection.
func (s *NodeService) join(ctx context.Context, conn net.Conn, piece int, data []byte, receive func() ([]byte, error), send func([]byte) error) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer context.AfterFunc(s.VMs.Context(), func() { conn.Close() })()
	go passOn(conn, data, receive)
	buf := make([]byte, piece)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			if err := send(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case s.VMs.Context().Err() != nil:
			return errLeaving
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
			return nil
		default:
			return err
		}
	}
}

// passOn writes what the caller sends. When that has sent all, what the connection gives still
// comes: it is the stream's end that ends it.
func passOn(conn net.Conn, data []byte, receive func() ([]byte, error)) {
	for {
		if len(data) > 0 {
			if _, err := conn.Write(data); err != nil {
				return
			}
		}
		var err error
		if data, err = receive(); err != nil {
			if half, can := conn.(interface{ CloseWrite() error }); can && errors.Is(err, io.EOF) {
				_ = half.CloseWrite() // fails if the peer has gone, which the reader finds
			}
			return
		}
	}
}
