package api

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/agent/vm"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
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

// TestEventsOfOnePod: who asks for the events of a pod's VM gets none of another pod's of that name, neither past nor later
// ones.
func TestEventsOfOnePod(t *testing.T) {
	a := newWorld(t).start()
	client := serveNode(t, filepath.Join(t.TempDir(), "s"), nil, &NodeService{VMs: a.Manager, Node: a.node})
	of := func(pod string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), contract.MetadataPodUID, pod)
	}
	tell := func(m *vm.VM, what string) { m.Publish(&nodev1.Event{Type: what}) }
	former := a.enter("first", firstPod)
	name := former.Name()
	tell(former, "former")
	watch := func(pod string) nodev1.NodeService_WatchEventsClient {
		stream, err := client.WatchEvents(of(pod), &nodev1.WatchEventsRequest{Name: name, Follow: true, Tail: 10})
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	want := func(stream nodev1.NodeService_WatchEventsClient, what string, code codes.Code) {
		t.Helper()
		got, err := stream.Recv()
		if status.Code(err) != code || got.GetEvent().GetType() != what {
			t.Fatalf("%v, %v, want %q, %v", got, err, what, code)
		}
	}
	first := watch(firstPod)
	want(first, "former", codes.OK)
	want(watch(secondPod), "", codes.NotFound)
	a.Dismiss(former)
	later := a.enter("first", secondPod)
	tell(later, "later")
	want(first, "", codes.NotFound)
	want(watch(secondPod), "later", codes.OK)
}
