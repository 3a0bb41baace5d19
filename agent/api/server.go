// Package api serves the agent's API: it translates between messages and the manager of VMs
// (agent/vm), and gives errors their codes. An Authenticator says who may call. The package
// must not decide anything about VMs. Start reading at NewServer and NodeService.
package api

import (
	"context"
	"log/slog"
	"runtime/debug"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/vm"
	"github.com/vmlet/vmlet/contract"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// maxRequest bounds a request, in bytes: a specification with cloud-init's
// user-data is the largest.
const maxRequest = 16 << 20

// errLeaving ends what follows or watches when the agent ends.
var errLeaving = fault.Errorf(codes.Unavailable, "the agent is shutting down; VMs go on")

// gate lets those in who may call, keeps panics from ending the agent and gives errors
// their codes.
type gate struct {
	callers Authenticator
	log     *slog.Logger
}

func (g *gate) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	if err := g.callers.Authenticate(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	defer g.recover(info.FullMethod, &err)
	resp, err = handler(forPod(ctx), req)
	return resp, fault.ToStatus(err)
}

func (g *gate) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	if err := g.callers.Authenticate(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	defer g.recover(info.FullMethod, &err)
	return fault.ToStatus(handler(srv, podStream{stream, forPod(stream.Context())}))
}

// forPod has a call be about the VM of the pod that its caller means.
func forPod(ctx context.Context) context.Context {
	if uids := metadata.ValueFromIncomingContext(ctx, contract.MetadataPodUID); len(uids) > 0 {
		return vm.ForPod(ctx, uids[0])
	}
	return ctx
}

// podStream is a stream with the context of forPod.
type podStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context is the stream's.
func (s podStream) Context() context.Context { return s.ctx }

// recover turns a panic into an error: one faulty call is not to cost the node
// its agent.
func (g *gate) recover(method string, err *error) {
	if r := recover(); r != nil {
		g.log.Error("panic", "method", method, "panic", r, "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "%s failed inside the agent: its log says where", method)
	}
}

// NewServer makes a server of the API for those whom callers lets in. Further options are
// the way's in which they come.
func NewServer(callers Authenticator, log *slog.Logger, further ...grpc.ServerOption) *grpc.Server {
	g := &gate{callers: callers, log: log}
	return grpc.NewServer(append([]grpc.ServerOption{
		grpc.Creds(callers.Credentials()),
		grpc.UnaryInterceptor(g.unary),
		grpc.StreamInterceptor(g.stream),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.WaitForHandlers(true),
	}, further...)...)
}
