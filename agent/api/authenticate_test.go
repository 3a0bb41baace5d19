package api

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/vm/vmtest"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// readers lets anybody call, over any connection, what begins with Get or List.
type readers struct{}

func (readers) Credentials() credentials.TransportCredentials { return insecure.NewCredentials() }

func (readers) Authenticate(_ context.Context, method string) error {
	name := method[strings.LastIndex(method, "/")+1:]
	if strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "List") {
		return nil
	}
	return status.Error(codes.Unauthenticated, "who are you?")
}

// TestAuthenticatorDecides: whether a call is let in is the authenticator's word alone, for
// streams, too, and over TCP.
func TestAuthenticatorDecides(t *testing.T) {
	a := newWorld(t).start()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(readers{}, slog.New(slog.DiscardHandler))
	nodev1.RegisterNodeServiceServer(server, &NodeService{VMs: a.Manager, Node: a.node})
	go server.Serve(l)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := nodev1.NewNodeServiceClient(conn)
	if _, err := c.ListVMs(t.Context(), &nodev1.ListVMsRequest{}); err != nil {
		t.Errorf("list: %v", err)
	}
	_, err = c.CreateVM(t.Context(), &nodev1.CreateVMRequest{Spec: vmtest.Spec("web")})
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("create: %v, want %v", err, codes.Unauthenticated)
	}
	stream, err := c.WatchEvents(t.Context(), &nodev1.WatchEventsRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("watch: %v, want %v", err, codes.Unauthenticated)
	}
	if n := len(a.All()); n != 0 {
		t.Errorf("%d VMs were made by who may not", n)
	}
}
