package api

import (
	"context"

	"google.golang.org/grpc/credentials"
)

// Authenticator tells who calls, and whether that caller may. A server has one for each
// way in which it is reached; several calls may be asked about at a time.
type Authenticator interface {
	// Credentials are what connections begin with; they leave in a call's context what
	// Authenticate looks for.
	Credentials() credentials.TransportCredentials
	// Authenticate refuses a call of a method ("/vmlet.node.v1.NodeService/GetVM") with a
	// gRPC status: PermissionDenied or Unauthenticated.
	Authenticate(ctx context.Context, method string) error
}
