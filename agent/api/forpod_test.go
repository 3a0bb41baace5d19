package api

import (
	"context"
	"log/slog"
	"testing"

	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/contract"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
)

// everybody may call.
type everybody struct{}

func (everybody) Authenticate(context.Context, string) error    { return nil }
func (everybody) Credentials() credentials.TransportCredentials { return nil }

// callStream is a call that streams.
type callStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s callStream) Context() context.Context { return s.ctx }

// TestCallForPod: a call, or a stream, that names a pod does not find the VM of that name that is not in it.
func TestCallForPod(t *testing.T) {
	a := newWorld(t).start()
	if _, err := a.Create(t.Context(), vmtest.Spec("web")); err != nil {
		t.Fatal(err)
	}
	g := &gate{callers: everybody{}, log: slog.New(slog.DiscardHandler)}
	for _, c := range []struct {
		what string
		sent metadata.MD
		want codes.Code
	}{
		{"that names no pod", metadata.MD{}, codes.OK},
		{"that names a pod", metadata.Pairs(contract.MetadataPodUID, "uid-gone"), codes.NotFound},
	} {
		ctx := metadata.NewIncomingContext(t.Context(), c.sent)
		_, err := g.unary(ctx, nil, new(grpc.UnaryServerInfo), func(ctx context.Context, _ any) (any, error) { return a.Get(ctx, "web") })
		vmtest.WantCode(t, "a call "+c.what, err, c.want)
		err = g.stream(nil, callStream{ctx: ctx}, new(grpc.StreamServerInfo), func(_ any, s grpc.ServerStream) error {
			_, err := a.Get(s.Context(), "web")
			return err
		})
		vmtest.WantCode(t, "a stream "+c.what, err, c.want)
	}
}
