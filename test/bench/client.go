package main

import (
	"time"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// client is a connection to an agent's API, for what the command would round, or
// drown in its own start.
type client struct {
	nodev1.NodeServiceClient
	conn *grpc.ClientConn
}

func (v *vmlet) client() (*client, error) {
	// An agent that is not there yet is tried again soon: gRPC's own first pause is a second,
	// and would be taken for the agent's.
	soon := backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1, MaxDelay: time.Millisecond}
	conn, err := grpc.NewClient("unix:"+v.path("run/vmlet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, err
	}
	return &client{nodev1.NewNodeServiceClient(conn), conn}, nil
}

func (c *client) close() { _ = c.conn.Close() } // nothing is under way on it
