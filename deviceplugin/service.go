package deviceplugin

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// service answers the kubelet on one socket.
type service struct {
	api.UnimplementedDevicePluginServer
	allocator
	state *state
	// ending is closed when the socket is given up: streams end by it.
	ending chan struct{}
	// allocations that were granted, by container.
	allocations *atomic.Uint64

	mu      sync.Mutex
	streams int
	// begun is closed with the first stream, lost when there is none any more.
	begun, lost       chan struct{}
	onceBegun, onceNo sync.Once
}

func newService(a allocator, s *state, allocations *atomic.Uint64) *service {
	return &service{
		allocator: a, state: s, allocations: allocations,
		ending: make(chan struct{}), begun: make(chan struct{}), lost: make(chan struct{}),
	}
}

// options are what a plugin tells the kubelet of itself, when it registers and when it asks.
func options() *api.DevicePluginOptions {
	return &api.DevicePluginOptions{GetPreferredAllocationAvailable: true}
}

func (s *service) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return options(), nil
}

// ListAndWatch tells the devices, and again when they change. A kubelet that
// reads slowly gets the newest state next, not each one that there was.
func (s *service) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	s.enter()
	defer s.leave()
	for {
		now, changed := s.state.get()
		if err := stream.Send(now.message); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.ending:
			return status.Error(codes.Unavailable, "this socket is given up")
		}
	}
}

func (s *service) enter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams++
	s.onceBegun.Do(func() { close(s.begun) })
}

func (s *service) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams--; s.streams == 0 {
		s.onceNo.Do(func() { close(s.lost) })
	}
}

func (s *service) Allocate(_ context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	now, _ := s.state.get()
	answer, err := s.allocate(now, r.GetContainerRequests())
	if err == nil {
		s.allocations.Add(uint64(len(answer.ContainerResponses)))
	}
	return answer, err
}

func (s *service) GetPreferredAllocation(_ context.Context, r *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	now, _ := s.state.get()
	answer := &api.PreferredAllocationResponse{}
	for _, c := range r.GetContainerRequests() {
		ids, err := s.prefer(now, c)
		if err != nil {
			return nil, err
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return answer, nil
}

// PreStartContainer is not announced in the options; a kubelet that calls it all
// the same is not kept from starting the container.
func (s *service) PreStartContainer(context.Context, *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	return &api.PreStartContainerResponse{}, nil
}
