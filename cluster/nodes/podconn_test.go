package nodes

import (
	"context"
	"slices"
	"testing"

	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// told is a connection that notes which pod each call is about.
type told struct{ pods []string }

func (c *told) note(ctx context.Context) {
	sent, _ := metadata.FromOutgoingContext(ctx)
	c.pods = append(c.pods, sent.Get(contract.MetadataPodUID)...)
}

func (c *told) Invoke(ctx context.Context, _ string, _, _ any, _ ...grpc.CallOption) error {
	c.note(ctx)
	return nil
}

func (c *told) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	c.note(ctx)
	return nil, nil
}

// TestClientFor: each call of an agent names the pod whose VM it is about.
func TestClientFor(t *testing.T) {
	conn := new(told)
	client := clientFor(conn, "uid-1")
	if _, err := client.KillVM(t.Context(), new(nodev1.KillVMRequest)); err != nil {
		t.Error(err)
	}
	if _, err := client.AttachConsole(t.Context()); err != nil {
		t.Error(err)
	}
	if want := []string{"uid-1", "uid-1"}; !slices.Equal(conn.pods, want) {
		t.Errorf("a call and a stream are about %q, want %q", conn.pods, want)
	}
}
