package cli

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	created    = nodev1.State_STATE_CREATED
	runs       = nodev1.State_STATE_RUNNING
	isPaused   = nodev1.State_STATE_PAUSED
	saving     = nodev1.State_STATE_SAVING
	saved      = nodev1.State_STATE_SAVED
	stopped    = nodev1.State_STATE_STOPPED
	crashed    = nodev1.State_STATE_CRASHED
	stateUnset = nodev1.State_STATE_UNSPECIFIED
)

// testNow is when the tests take place.
func testNow() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// fakeNode is a node whose machines are records. It refuses what the contract
// refuses, and what a test did not foresee is UNIMPLEMENTED.
type fakeNode struct {
	nodev1.UnimplementedNodeServiceServer
	socket string
	server *grpc.Server

	mu    sync.Mutex
	vms   map[string]*nodev1.VirtualMachine
	calls []string // "StartVM name:\"a\"", in order
	// fail answers a method with an error.
	fail map[string]error
	// events of the past; watchers get those of the future.
	events   []*nodev1.Event
	watchers []chan *nodev1.WatchEventsResponse
	watched  chan struct{} // closed when there is a watcher
	// console is the guest's end of a console.
	console func(in <-chan []byte, out func(string))
	// save is called in the middle of a save.
	save func(ctx context.Context) error
	// guestIgnoresButton makes StopVM kill.
	guestIgnoresButton bool
	// interrupted stands for Ctrl-C in the middle of StartVM and StopVM.
	interrupted func()
	logs        map[string]string // by kind
}

func newFakeNode(t *testing.T, vms ...*nodev1.VirtualMachine) *fakeNode {
	t.Helper()
	n := &fakeNode{
		socket: filepath.Join(t.TempDir(), "s"), vms: map[string]*nodev1.VirtualMachine{},
		fail: map[string]error{}, logs: map[string]string{}, watched: make(chan struct{}),
	}
	for _, vm := range vms {
		n.vms[vm.Spec.Name] = vm
	}
	l, err := net.Listen("unix", n.socket)
	if err != nil {
		t.Fatal(err)
	}
	n.server = grpc.NewServer(grpc.UnaryInterceptor(n.unary), grpc.StreamInterceptor(n.stream))
	nodev1.RegisterNodeServiceServer(n.server, n)
	go n.server.Serve(l)
	t.Cleanup(n.server.Stop)
	return n
}

func machine(name string, state nodev1.State) *nodev1.VirtualMachine {
	return &nodev1.VirtualMachine{
		Id:   "11111111-2222-4333-8444-" + fmt.Sprintf("%012x", len(name)),
		Spec: &specv1.VirtualMachineSpec{Name: name},
		Status: &nodev1.VirtualMachineStatus{
			State: state, CreatedAt: timestamppb.New(testNow().Add(-90 * time.Minute)),
		},
	}
}

func (n *fakeNode) record(method string, req any) error {
	short := filepath.Base(method)
	text, err := prototext.MarshalOptions{}.Marshal(req.(proto.Message))
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, short+" "+squeeze(string(text)))
	return n.fail[short]
}

func (n *fakeNode) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := n.record(info.FullMethod, req); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (n *fakeNode) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, &recordedStream{ServerStream: s, n: n, method: info.FullMethod})
}

// recordedStream records the first message.
type recordedStream struct {
	grpc.ServerStream
	n      *fakeNode
	method string
	once   sync.Once
}

func (s *recordedStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.once.Do(func() { err = s.n.record(s.method, m) })
	}
	return err
}

// change does something to a machine in one of the states.
func (n *fakeNode) change(name string, to nodev1.State, from ...nodev1.State) (*nodev1.VirtualMachine, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	vm := n.vms[name]
	if vm == nil {
		return nil, status.Errorf(codes.NotFound, "no vm %q: see vmlet list", name)
	}
	if len(from) > 0 && !slices.Contains(from, vm.Status.State) {
		return nil, status.Errorf(codes.FailedPrecondition, "vm %q is %s: not now", name, stateName(vm.Status.State))
	}
	if to != stateUnset && to != vm.Status.State {
		vm.Status.State = to
		n.emit(&nodev1.Event{Time: timestamppb.New(testNow()), Vm: name, VmId: vm.Id, Type: "state", State: to})
	}
	return proto.CloneOf(vm), nil
}

// emit is called with the lock held.
func (n *fakeNode) emit(e *nodev1.Event) {
	n.events = append(n.events, e)
	for _, w := range n.watchers {
		w <- &nodev1.WatchEventsResponse{Event: e}
	}
}

func (n *fakeNode) CreateVM(_ context.Context, r *nodev1.CreateVMRequest) (*nodev1.CreateVMResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.vms[r.Spec.GetName()]; old != nil {
		if proto.Equal(old.Spec, r.Spec) {
			return &nodev1.CreateVMResponse{Vm: old}, nil
		}
		return nil, status.Errorf(codes.AlreadyExists, "vm %q exists with another specification", r.Spec.GetName())
	}
	vm := machine(r.Spec.GetName(), created)
	vm.Spec = r.Spec
	n.vms[r.Spec.Name] = vm
	return &nodev1.CreateVMResponse{Vm: proto.CloneOf(vm)}, nil
}

func (n *fakeNode) StartVM(r *nodev1.StartVMRequest, s grpc.ServerStreamingServer[nodev1.StartVMResponse]) error {
	if n.interrupted != nil {
		n.interrupted()
		<-s.Context().Done()
		return status.FromContextError(s.Context().Err()).Err()
	}
	to := runs
	if r.Paused {
		to = isPaused
	}
	vm, err := n.change(r.Name, to, created, saved, stopped, crashed)
	if err != nil {
		return err
	}
	for done := range uint64(3) {
		s.Send(&nodev1.StartVMResponse{Progress: &nodev1.Progress{Step: "memory", BytesDone: done << 30, BytesTotal: 2 << 30}})
	}
	return s.Send(&nodev1.StartVMResponse{Vm: vm})
}

func (n *fakeNode) GetVM(_ context.Context, r *nodev1.GetVMRequest) (*nodev1.GetVMResponse, error) {
	vm, err := n.change(r.Name, stateUnset)
	return &nodev1.GetVMResponse{Vm: vm}, err
}

func (n *fakeNode) ListVMs(_ context.Context, _ *nodev1.ListVMsRequest) (*nodev1.ListVMsResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := &nodev1.ListVMsResponse{}
	for _, vm := range n.vms {
		r.Vms = append(r.Vms, proto.CloneOf(vm))
	}
	slices.SortFunc(r.Vms, func(a, b *nodev1.VirtualMachine) int {
		if a.Spec.Name < b.Spec.Name {
			return -1
		}
		return 1
	})
	return r, nil
}

func (n *fakeNode) StopVM(ctx context.Context, r *nodev1.StopVMRequest) (*nodev1.StopVMResponse, error) {
	if n.interrupted != nil {
		n.interrupted()
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	vm, err := n.change(r.Name, stopped, runs, isPaused)
	if status.Code(err) == codes.FailedPrecondition { // nothing runs: the agent changes nothing
		vm, err = n.change(r.Name, stateUnset)
	}
	return &nodev1.StopVMResponse{Vm: vm, Killed: n.guestIgnoresButton}, err
}

func (n *fakeNode) KillVM(_ context.Context, r *nodev1.KillVMRequest) (*nodev1.KillVMResponse, error) {
	vm, err := n.change(r.Name, stopped, runs, isPaused)
	return &nodev1.KillVMResponse{Vm: vm}, err
}

func (n *fakeNode) PauseVM(_ context.Context, r *nodev1.PauseVMRequest) (*nodev1.PauseVMResponse, error) {
	vm, err := n.change(r.Name, isPaused, runs, isPaused)
	return &nodev1.PauseVMResponse{Vm: vm}, err
}

func (n *fakeNode) ResumeVM(_ context.Context, r *nodev1.ResumeVMRequest) (*nodev1.ResumeVMResponse, error) {
	vm, err := n.change(r.Name, runs, runs, isPaused)
	return &nodev1.ResumeVMResponse{Vm: vm}, err
}

func (n *fakeNode) ResetVM(_ context.Context, r *nodev1.ResetVMRequest) (*nodev1.ResetVMResponse, error) {
	vm, err := n.change(r.Name, stateUnset, runs, isPaused)
	return &nodev1.ResetVMResponse{Vm: vm}, err
}

func (n *fakeNode) ResizeVM(_ context.Context, r *nodev1.ResizeVMRequest) (*nodev1.ResizeVMResponse, error) {
	vm, err := n.change(r.Name, stateUnset, runs, isPaused, created, stopped)
	has := uint64(300 << 20)
	return &nodev1.ResizeVMResponse{Vm: vm, MemoryBytes: &has}, err
}

func (n *fakeNode) Attach(_ context.Context, r *nodev1.AttachRequest) (*nodev1.AttachResponse, error) {
	vm, err := n.change(r.Name, stateUnset, runs, isPaused, created, stopped)
	name := r.GetDisk().GetName() + r.GetNetwork().GetName()
	if name == "" {
		name = "default"
	}
	return &nodev1.AttachResponse{Vm: vm, Device: name}, err
}

func (n *fakeNode) Detach(_ context.Context, r *nodev1.DetachRequest) (*nodev1.DetachResponse, error) {
	vm, err := n.change(r.Name, stateUnset, runs, isPaused, created, stopped)
	return &nodev1.DetachResponse{Vm: vm}, err
}

func (n *fakeNode) DeleteVM(_ context.Context, r *nodev1.DeleteVMRequest) (*nodev1.DeleteVMResponse, error) {
	_, err := n.change(r.Name, stateUnset, created, saved, stopped, crashed)
	if err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.vms, r.Name)
	}
	return &nodev1.DeleteVMResponse{}, err
}

func (n *fakeNode) SaveVM(r *nodev1.SaveVMRequest, s grpc.ServerStreamingServer[nodev1.SaveVMResponse]) error {
	if _, err := n.change(r.Name, saving, runs, isPaused); err != nil {
		return err
	}
	s.Send(&nodev1.SaveVMResponse{Progress: &nodev1.Progress{Step: "memory", BytesDone: 1 << 20, BytesTotal: 1 << 30}})
	if n.save != nil {
		if err := n.save(s.Context()); err != nil {
			n.change(r.Name, runs)
			return err
		}
	}
	to := saved
	if r.KeepRunning {
		to = runs
	}
	vm, err := n.change(r.Name, to)
	if err != nil {
		return err
	}
	return s.Send(&nodev1.SaveVMResponse{Vm: vm, Result: &nodev1.SaveResult{
		ImageId: "i", MemoryBytes: 100 << 20, StateBytes: 300 << 10, StoppedMs: 1234,
	}})
}

func (n *fakeNode) RestoreVM(r *nodev1.RestoreVMRequest, s grpc.ServerStreamingServer[nodev1.RestoreVMResponse]) error {
	name, state := r.Name, runs
	if name == "" {
		name = "from-image"
	}
	if r.Paused {
		state = isPaused
	}
	return s.Send(&nodev1.RestoreVMResponse{Vm: machine(name, state)})
}

func (n *fakeNode) GetNode(context.Context, *nodev1.GetNodeRequest) (*nodev1.GetNodeResponse, error) {
	return &nodev1.GetNodeResponse{
		Name: "node-1", AgentVersion: "v0.1.0",
		Hypervisors: []*nodev1.HypervisorStatus{
			{Name: "kvm", State: capabilitiesv1.State_STATE_DEGRADED, Reason: "without arch-capabilities"},
			{Name: "emulation", State: capabilitiesv1.State_STATE_WORKS},
		},
		Vmms: []*nodev1.Vmm{
			{Name: "qemu", Version: "7.2.0", Binary: "/usr/bin/qemu-system-x86_64"},
			{Name: "cloud-hypervisor", Reason: "cloud-hypervisor is not installed"},
		},
	}, nil
}

func (n *fakeNode) GetVmmName(context.Context, *nodev1.GetVmmNameRequest) (*nodev1.GetVmmNameResponse, error) {
	return &nodev1.GetVmmNameResponse{Name: "qemu"}, nil
}
