package api

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc"
)

// AttachDisplay joins the caller and the display until either ends.
func (s *NodeService) AttachDisplay(stream grpc.BidiStreamingServer[nodev1.AttachDisplayRequest, nodev1.AttachDisplayResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	keep := first.GetSharing() == nodev1.Sharing_SHARING_PRESERVE
	conn, err := s.VMs.Guests.Display(stream.Context(), first.GetName(), keep)
	if err != nil {
		return err
	}
	if err := stream.SendHeader(nil); err != nil { // as in AttachConsole
		conn.Close()
		return err
	}
	return s.join(stream.Context(), conn, pieceSize, first.GetData(),
		func() ([]byte, error) {
			r, err := stream.Recv()
			if err != nil { // a viewer that says no more has gone
				conn.Close()
			}
			return r.GetData(), err
		},
		func(b []byte) error { return stream.Send(&nodev1.AttachDisplayResponse{Data: b}) })
}

// TakeScreenshot sends a picture of the display.
func (s *NodeService) TakeScreenshot(r *nodev1.TakeScreenshotRequest, stream grpc.ServerStreamingServer[nodev1.TakeScreenshotResponse]) error {
	picture, err := s.VMs.Guests.Screenshot(stream.Context(), r.GetName(), r.GetMovePointer())
	if err != nil {
		return err
	}
	defer picture.Close()
	buf := make([]byte, pieceSize)
	for {
		n, err := picture.Read(buf)
		if n > 0 {
			if err := stream.Send(&nodev1.TakeScreenshotResponse{Data: buf[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// RebootVM asks the guest to reboot.
func (s *NodeService) RebootVM(ctx context.Context, r *nodev1.RebootVMRequest) (*nodev1.RebootVMResponse, error) {
	vm, err := s.VMs.Guests.Reboot(ctx, r.GetName())
	return &nodev1.RebootVMResponse{Vm: vm}, err
}

// RenewVM has another process of the VMM take the place of the one that runs, under its guest.
func (s *NodeService) RenewVM(ctx context.Context, r *nodev1.RenewVMRequest) (*nodev1.RenewVMResponse, error) {
	vm, result, err := s.VMs.Renewer.Renew(ctx, r.GetName(), nil)
	return &nodev1.RenewVMResponse{Vm: vm, Result: result}, err
}

// SuspendVM asks the guest to suspend itself to disk.
func (s *NodeService) SuspendVM(ctx context.Context, r *nodev1.SuspendVMRequest) (*nodev1.SuspendVMResponse, error) {
	vm, err := s.VMs.Guests.Suspend(ctx, r.GetName())
	return &nodev1.SuspendVMResponse{Vm: vm}, err
}

// GetGuest asks the guest's agent.
func (s *NodeService) GetGuest(ctx context.Context, r *nodev1.GetGuestRequest) (*nodev1.GetGuestResponse, error) {
	return s.VMs.Guests.Inspect(ctx, r.GetName())
}

// FreezeGuest freezes the guest's file systems.
func (s *NodeService) FreezeGuest(ctx context.Context, r *nodev1.FreezeGuestRequest) (*nodev1.FreezeGuestResponse, error) {
	const most = int64(24 * time.Hour / time.Millisecond) // the shim's, too
	if r.GetTimeoutMs() > most {
		return nil, fault.Invalid("timeout_ms", "%d: at most %d", r.GetTimeoutMs(), most)
	}
	return new(nodev1.FreezeGuestResponse), s.VMs.Guests.Freeze(ctx, r.GetName(), time.Duration(r.GetTimeoutMs())*time.Millisecond)
}

// ThawGuest ends a freeze.
func (s *NodeService) ThawGuest(ctx context.Context, r *nodev1.ThawGuestRequest) (*nodev1.ThawGuestResponse, error) {
	return new(nodev1.ThawGuestResponse), s.VMs.Guests.Thaw(ctx, r.GetName())
}
