package nodestest

import (
	"context"
	"crypto/tls"
	"maps"
	"sync"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Agent serves the calls by which the controller follows VMs and saves them. Its methods may be called
// concurrently. All that is not set up by a test is refused.
type Agent struct {
	nodev1.UnimplementedNodeServiceServer

	mu       sync.Mutex
	vms      map[string]*nodev1.VirtualMachine // by the pod's UID
	complete bool
	changed  chan struct{} // closed, and another made, at each change
	ended    map[string]error
	streams  int
	// Machine is the one on which the agent says that it runs; set before it serves.
	Machine string
	save    func(context.Context, *nodev1.SaveVMRequest) (*nodev1.SaveResult, error)
	suspend func(context.Context, *nodev1.SuspendVMRequest) error
}

// NewAgent makes an agent of the VMs of these pods. It has all of them taken up.
func NewAgent(vms ...*nodev1.VirtualMachine) *Agent {
	a := &Agent{
		vms: make(map[string]*nodev1.VirtualMachine), complete: true,
		changed: make(chan struct{}), ended: make(map[string]error),
	}
	for _, vm := range vms {
		a.vms[vm.GetStatus().GetPod().GetUid()] = vm
	}
	return a
}

// VM is a VM of a pod as agents send it.
func VM(namespace, name, uid string, state nodev1.State) *nodev1.VirtualMachine {
	return &nodev1.VirtualMachine{Id: uid, Status: &nodev1.VirtualMachineStatus{
		State: state, Pod: &nodev1.PodReference{Namespace: namespace, Name: name, Uid: uid, Container: "compute"},
	}}
}

// Set replaces what the agent says of a pod's VM.
func (a *Agent) Set(vm *nodev1.VirtualMachine) {
	a.change(func() { a.vms[vm.GetStatus().GetPod().GetUid()] = vm })
}

// Remove has the agent know no VM of that pod.
func (a *Agent) Remove(uid string) { a.change(func() { delete(a.vms, uid) }) }

// SetComplete says whether the agent has taken up all VMs.
func (a *Agent) SetComplete(complete bool) { a.change(func() { a.complete = complete }) }

// SetEnded says what ConfirmPodEnded answers for a pod; nil: it has ended.
func (a *Agent) SetEnded(uid string, err error) { a.change(func() { a.ended[uid] = err }) }

func (a *Agent) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	close(a.changed)
	a.changed = make(chan struct{})
}

// Streams is how many streams have been begun.
func (a *Agent) Streams() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.streams
}

func (a *Agent) look() (map[string]*nodev1.VirtualMachine, bool, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.vms), a.complete, a.changed
}

// WatchVMs sends the newest state of each VM.
func (a *Agent) WatchVMs(_ *nodev1.WatchVMsRequest, stream grpc.ServerStreamingServer[nodev1.WatchVMsResponse]) error {
	a.mu.Lock()
	a.streams++
	a.mu.Unlock()
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	sent, said := make(map[string]*nodev1.VirtualMachine), false
	for {
		vms, complete, changed := a.look()
		var messages []*nodev1.WatchVMsResponse
		for uid, vm := range vms {
			if sent[uid] != vm {
				messages = append(messages, &nodev1.WatchVMsResponse{Update: &nodev1.WatchVMsResponse_Vm{Vm: vm}})
			}
		}
		for uid, vm := range sent {
			if vms[uid] == nil {
				messages = append(messages, &nodev1.WatchVMsResponse{Update: &nodev1.WatchVMsResponse_Gone{Gone: vm.GetStatus().GetPod()}})
			}
		}
		if complete && !said {
			said = true
			messages = append(messages, &nodev1.WatchVMsResponse{Update: &nodev1.WatchVMsResponse_Complete{Complete: true}})
		}
		for _, m := range messages {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		sent = vms
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// ConfirmPodEnded answers what SetEnded has said, and refuses all else.
func (a *Agent) ConfirmPodEnded(_ context.Context, r *nodev1.ConfirmPodEndedRequest) (*nodev1.ConfirmPodEndedResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	err, known := a.ended[r.GetPodUid()]
	if !known {
		return nil, status.Errorf(codes.Internal, "a test has not said whether pod %q has ended", r.GetPodUid())
	}
	return &nodev1.ConfirmPodEndedResponse{Machine: a.Machine}, err
}

// Serve serves the agent at an address of this machine, "127.0.0.1:0" for a free port, until
// stop is called.
func (a *Agent) Serve(address string, config *tls.Config) (bound string, stop func(), err error) {
	return serve(a, address, config)
}
