package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/vmlet/vmlet/internal/unixsocket"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// PeerUsers lets users of this machine in, who come over a unix socket: root, the agent's own
// user, and those whose ids are listed.
type PeerUsers []uint32

// Credentials ask the kernel who connects.
func (PeerUsers) Credentials() credentials.TransportCredentials { return peerCredentials{} }

// Authenticate looks at the user's id; all methods are alike.
func (p PeerUsers) Authenticate(ctx context.Context, _ string) error {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return status.Error(codes.PermissionDenied, "peer credentials unavailable")
	}
	c, ok := from.AuthInfo.(caller)
	if !ok {
		return status.Error(codes.PermissionDenied, "peer credentials unavailable")
	}
	if c.uid == 0 || c.uid == uint32(os.Getuid()) || slices.Contains(p, c.uid) {
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "user %d may not use this agent: be root, or have the id added to allowedUsers in the agent's configuration", c.uid)
}

// peerCredentials finds out who connects to a unix socket. There is nothing to
// encrypt on one.
type peerCredentials struct{}

// caller is who is at the other end (SO_PEERCRED, unix(7)).
type caller struct {
	credentials.CommonAuthInfo
	uid uint32
	pid int32
}

func (caller) AuthType() string { return "unix-peer" }

func (peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil, fmt.Errorf("a connection of type %T, not over a unix socket", conn)
	}
	cred, err := unixsocket.Peer(c)
	if err != nil {
		return nil, nil, err
	}
	info := caller{uid: cred.Uid, pid: cred.Pid}
	info.SecurityLevel = credentials.PrivacyAndIntegrity
	return conn, info, nil
}

func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a server's")
}

func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peer"}
}
func (peerCredentials) Clone() credentials.TransportCredentials { return peerCredentials{} }
func (peerCredentials) OverrideServerName(string) error         { return nil }
