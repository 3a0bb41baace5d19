// Package api serves the agent's API: it translates between messages and the manager of VMs
// (agent/vm), and gives errors their codes. An Authenticator says who may call. The package
// must not decide anything about VMs. Start reading at NewServer and NodeService.
package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"runtime/debug"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/internal/posixacl"
	"github.com/vmlet/vmlet/internal/unixsocket"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxRequest bounds a request, in bytes: a specification with cloud-init's
// user-data is the largest.
const maxRequest = 16 << 20

// errLeaving ends what follows or watches when the agent ends.
var errLeaving = fault.Errorf(codes.Unavailable, "the agent is shutting down; VMs go on")

// clearSocket removes the socket that an earlier agent has left. The caller's lock is
// on its run folder, and the socket may be anywhere: another agent may serve it.
func clearSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there and is no socket: remove it, or name another", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("%s: another agent serves it: stop that one, or give this one a socket of its own (--socket, VMLET_SOCKET, or socket in its configuration)", path), conn.Close())
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("whether another agent serves it is unknown: %w", err)
	}
	return os.Remove(path)
}

// Listen makes the API's socket.
func Listen(path string, allowed []uint32) (net.Listener, error) {
	if err := clearSocket(path); err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	// Bound under another name, and renamed when it is only ours: nobody else
	// finds it open for a moment, and a bind of a process at large needs no umask.
	temp := path + unixsocket.TempSuffix
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(temp, 0o600)
	for _, uid := range allowed {
		if err == nil {
			err = posixacl.Grant(temp, uid, posixacl.Read|posixacl.Write)
		}
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the socket %s: %w", path, err), l.Close(), os.Remove(temp))
	}
	return l, nil
}

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
	resp, err = handler(ctx, req)
	return resp, fault.ToStatus(err)
}

func (g *gate) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	if err := g.callers.Authenticate(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	defer g.recover(info.FullMethod, &err)
	return fault.ToStatus(handler(srv, stream))
}

// recover turns a panic into an error: one faulty call is not to cost the node
// its agent.
func (g *gate) recover(method string, err *error) {
	if r := recover(); r != nil {
		g.log.Error("panic", "method", method, "panic", r, "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "%s failed inside the agent: its log says where", method)
	}
}

// NewServer makes a server of the API for those whom callers lets in.
func NewServer(callers Authenticator, log *slog.Logger) *grpc.Server {
	g := &gate{callers: callers, log: log}
	return grpc.NewServer(
		grpc.Creds(callers.Credentials()),
		grpc.UnaryInterceptor(g.unary),
		grpc.StreamInterceptor(g.stream),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.WaitForHandlers(true),
	)
}
