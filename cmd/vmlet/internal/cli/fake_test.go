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

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
)

const (
	created    = vmletv1.State_STATE_CREATED
	runs       = vmletv1.State_STATE_RUNNING
	isPaused   = vmletv1.State_STATE_PAUSED
	saving     = vmletv1.State_STATE_SAVING
	saved      = vmletv1.State_STATE_SAVED
	stopped    = vmletv1.State_STATE_STOPPED
	crashed    = vmletv1.State_STATE_CRASHED
	stateUnset = vmletv1.State_STATE_UNSPECIFIED
)

// testNow is when the tests take place.
func testNow() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// fakeNode is a node whose machines are records. It refuses what the contract
// refuses, and what a test did not foresee is UNIMPLEMENTED.
type fakeNode struct {
	vmletv1.UnimplementedNodeServiceServer
	socket string
	server *grpc.Server

	mu    sync.Mutex
	vms   map[string]*vmletv1.VirtualMachine
	calls []string // "StartVM name:\"a\"", in order
	// fail answers a method with an error.
	fail map[string]error
	// events of the past; watchers get those of the future.
	events   []*vmletv1.Event
	watchers []chan *vmletv1.WatchEventsResponse
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

func newFakeNode(t *testing.T, vms ...*vmletv1.VirtualMachine) *fakeNode {
	t.Helper()
	n := &fakeNode{
		socket: filepath.Join(t.TempDir(), "s"), vms: map[string]*vmletv1.VirtualMachine{},
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
	vmletv1.RegisterNodeServiceServer(n.server, n)
	go n.server.Serve(l)
	t.Cleanup(n.server.Stop)
	return n
}

func machine(name string, state vmletv1.State) *vmletv1.VirtualMachine {
	return &vmletv1.VirtualMachine{
		Id:   "11111111-2222-4333-8444-" + fmt.Sprintf("%012x", len(name)),
		Spec: &vmletv1.VirtualMachineSpec{Name: name},
		Status: &vmletv1.VirtualMachineStatus{
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
func (n *fakeNode) change(name string, to vmletv1.State, from ...vmletv1.State) (*vmletv1.VirtualMachine, error) {
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
		n.emit(&vmletv1.Event{Time: timestamppb.New(testNow()), Vm: name, VmId: vm.Id, Type: "state", State: to})
	}
	return proto.CloneOf(vm), nil
}

// emit is called with the lock held.
func (n *fakeNode) emit(e *vmletv1.Event) {
	n.events = append(n.events, e)
	for _, w := range n.watchers {
		w <- &vmletv1.WatchEventsResponse{Event: e}
	}
}

func (n *fakeNode) CreateVM(_ context.Context, r *vmletv1.CreateVMRequest) (*vmletv1.CreateVMResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.vms[r.Spec.GetName()]; old != nil {
		if proto.Equal(old.Spec, r.Spec) {
			return &vmletv1.CreateVMResponse{Vm: old}, nil
		}
		return nil, status.Errorf(codes.AlreadyExists, "vm %q exists with another specification", r.Spec.GetName())
	}
	vm := machine(r.Spec.GetName(), created)
	vm.Spec = r.Spec
	n.vms[r.Spec.Name] = vm
	return &vmletv1.CreateVMResponse{Vm: proto.CloneOf(vm)}, nil
}

func (n *fakeNode) StartVM(r *vmletv1.StartVMRequest, s grpc.ServerStreamingServer[vmletv1.StartVMResponse]) error {
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
		s.Send(&vmletv1.StartVMResponse{Progress: &vmletv1.Progress{Step: "memory", BytesDone: done << 30, BytesTotal: 2 << 30}})
	}
	return s.Send(&vmletv1.StartVMResponse{Vm: vm})
}

func (n *fakeNode) GetVM(_ context.Context, r *vmletv1.GetVMRequest) (*vmletv1.GetVMResponse, error) {
	vm, err := n.change(r.Name, stateUnset)
	return &vmletv1.GetVMResponse{Vm: vm}, err
}

func (n *fakeNode) ListVMs(_ context.Context, _ *vmletv1.ListVMsRequest) (*vmletv1.ListVMsResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := &vmletv1.ListVMsResponse{}
	for _, vm := range n.vms {
		r.Vms = append(r.Vms, proto.CloneOf(vm))
	}
	slices.SortFunc(r.Vms, func(a, b *vmletv1.VirtualMachine) int {
		if a.Spec.Name < b.Spec.Name {
			return -1
		}
		return 1
	})
	return r, nil
}

func (n *fakeNode) StopVM(ctx context.Context, r *vmletv1.StopVMRequest) (*vmletv1.StopVMResponse, error) {
	if n.interrupted != nil {
		n.interrupted()
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	vm, err := n.change(r.Name, stopped, runs, isPaused)
	if status.Code(err) == codes.FailedPrecondition { // nothing runs: the agent changes nothing
		vm, err = n.change(r.Name, stateUnset)
	}
	return &vmletv1.StopVMResponse{Vm: vm, Killed: n.guestIgnoresButton}, err
}

func (n *fakeNode) KillVM(_ context.Context, r *vmletv1.KillVMRequest) (*vmletv1.KillVMResponse, error) {
	vm, err := n.change(r.Name, stopped, runs, isPaused)
	return &vmletv1.KillVMResponse{Vm: vm}, err
}

func (n *fakeNode) PauseVM(_ context.Context, r *vmletv1.PauseVMRequest) (*vmletv1.PauseVMResponse, error) {
	vm, err := n.change(r.Name, isPaused, runs, isPaused)
	return &vmletv1.PauseVMResponse{Vm: vm}, err
}

func (n *fakeNode) ResumeVM(_ context.Context, r *vmletv1.ResumeVMRequest) (*vmletv1.ResumeVMResponse, error) {
	vm, err := n.change(r.Name, runs, runs, isPaused)
	return &vmletv1.ResumeVMResponse{Vm: vm}, err
}

func (n *fakeNode) ResetVM(_ context.Context, r *vmletv1.ResetVMRequest) (*vmletv1.ResetVMResponse, error) {
	vm, err := n.change(r.Name, stateUnset, runs, isPaused)
	return &vmletv1.ResetVMResponse{Vm: vm}, err
}

func (n *fakeNode) ResizeVM(_ context.Context, r *vmletv1.ResizeVMRequest) (*vmletv1.ResizeVMResponse, error) {
	vm, err := n.change(r.Name, stateUnset, runs, isPaused, created, stopped)
	has := uint64(300 << 20)
	return &vmletv1.ResizeVMResponse{Vm: vm, MemoryBytes: &has}, err
}

func (n *fakeNode) Attach(_ context.Context, r *vmletv1.AttachRequest) (*vmletv1.AttachResponse, error) {
	vm, err := n.change(r.Name, stateUnset, runs, isPaused, created, stopped)
	name := r.GetDisk().GetName() + r.GetNetwork().GetName()
	if name == "" {
		name = "default"
	}
	return &vmletv1.AttachResponse{Vm: vm, Device: name}, err
}

func (n *fakeNode) Detach(_ context.Context, r *vmletv1.DetachRequest) (*vmletv1.DetachResponse, error) {
	vm, err := n.change(r.Name, stateUnset, runs, isPaused, created, stopped)
	return &vmletv1.DetachResponse{Vm: vm}, err
}

func (n *fakeNode) DeleteVM(_ context.Context, r *vmletv1.DeleteVMRequest) (*vmletv1.DeleteVMResponse, error) {
	_, err := n.change(r.Name, stateUnset, created, saved, stopped, crashed)
	if err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.vms, r.Name)
	}
	return &vmletv1.DeleteVMResponse{}, err
}

func (n *fakeNode) SaveVM(r *vmletv1.SaveVMRequest, s grpc.ServerStreamingServer[vmletv1.SaveVMResponse]) error {
	if _, err := n.change(r.Name, saving, runs, isPaused); err != nil {
		return err
	}
	s.Send(&vmletv1.SaveVMResponse{Progress: &vmletv1.Progress{Step: "memory", BytesDone: 1 << 20, BytesTotal: 1 << 30}})
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
	return s.Send(&vmletv1.SaveVMResponse{Vm: vm, Result: &vmletv1.SaveResult{
		ImageId: "i", MemoryBytes: 100 << 20, StateBytes: 300 << 10, StoppedMs: 1234,
	}})
}

func (n *fakeNode) RestoreVM(r *vmletv1.RestoreVMRequest, s grpc.ServerStreamingServer[vmletv1.RestoreVMResponse]) error {
	name, state := r.Name, runs
	if name == "" {
		name = "from-image"
	}
	if r.Paused {
		state = isPaused
	}
	return s.Send(&vmletv1.RestoreVMResponse{Vm: machine(name, state)})
}

func (n *fakeNode) GetNode(context.Context, *vmletv1.GetNodeRequest) (*vmletv1.GetNodeResponse, error) {
	return &vmletv1.GetNodeResponse{
		Name: "node-1", AgentVersion: "v0.1.0",
		Hypervisors: []*vmletv1.HypervisorStatus{
			{Name: "kvm", Level: "degraded", Reason: "without arch-capabilities"},
			{Name: "emulation", Level: "works"},
		},
		Vmms: []*vmletv1.Vmm{
			{Name: "qemu", Version: "7.2.0", Binary: "/usr/bin/qemu-system-x86_64"},
			{Name: "cloud-hypervisor", Reason: "cloud-hypervisor is not installed"},
		},
	}, nil
}

func (n *fakeNode) GetVmmName(context.Context, *vmletv1.GetVmmNameRequest) (*vmletv1.GetVmmNameResponse, error) {
	return &vmletv1.GetVmmNameResponse{Name: "qemu"}, nil
}
