package api

import (
	"context"

	"github.com/google/uuid"
	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/vm"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
)

// maxWatched bounds what WatchVMs sends of one VM, in bytes: its effective specification may
// be a pod's, and as large as that likes. Anyone who watches the VMs of many nodes bounds what it
// takes of one node.
const maxWatched = 32 << 10

// PodVMs is what the API asks of those who run the VMs of pods.
type PodVMs interface {
	// TakenUp is closed when the VMs of the pods that were there at the agent's start have
	// been taken up.
	TakenUp() <-chan struct{}
	// ConfirmEnded promises that no VM of that pod runs, and that none will be launched.
	ConfirmEnded(ctx context.Context, pod types.UID) error
}

// errNoPods answers calls about pods where the agent runs none of their VMs.
var errNoPods = fault.Errorf(codes.Unimplemented, "this agent runs no VMs of pods: see pods.enabled in its configuration, and whether it has an API server")

// ConfirmPodEnded promises that no VM of a pod runs, nor will.
func (s *NodeService) ConfirmPodEnded(ctx context.Context, r *nodev1.ConfirmPodEndedRequest) (*nodev1.ConfirmPodEndedResponse, error) {
	if s.Pods == nil {
		return nil, errNoPods
	}
	if err := uuid.Validate(r.GetPodUid()); err != nil {
		return nil, fault.Invalid("podUid", "%.64q is no UID of a pod: %v", r.GetPodUid(), err)
	}
	return &nodev1.ConfirmPodEndedResponse{Machine: s.Machine}, s.Pods.ConfirmEnded(ctx, types.UID(r.GetPodUid()))
}

// WatchVMs sends the VMs of pods as they are, and then those that change.
func (s *NodeService) WatchVMs(_ *nodev1.WatchVMsRequest, stream grpc.ServerStreamingServer[nodev1.WatchVMsResponse]) error {
	if s.Pods == nil {
		return errNoPods
	}
	changed, stop := s.VMs.Follow()
	defer stop()
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	w := watched{send: stream.Send, sent: make(map[types.UID]*nodev1.VirtualMachine)}
	takenUp := s.Pods.TakenUp()
	for complete := false; ; {
		select {
		case <-changed:
		case <-takenUp:
			complete, takenUp = true, nil
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.VMs.Context().Done():
			return errLeaving
		}
		if err := w.update(s.VMs.All()); err != nil {
			return err
		}
		if complete { // looked at the VMs since
			complete = false
			if err := w.complete(); err != nil {
				return err
			}
		}
	}
}

// watched is what one caller has been sent.
type watched struct {
	send func(*nodev1.WatchVMsResponse) error
	// sent are the newest records, by pod. A record is replaced, and never changed.
	sent map[types.UID]*nodev1.VirtualMachine
}

func (w *watched) complete() error {
	return w.send(&nodev1.WatchVMsResponse{Update: &nodev1.WatchVMsResponse_Complete{Complete: true}})
}

// update sends what is new.
func (w *watched) update(all []*vm.VM) error {
	there := make(map[types.UID]bool, len(w.sent))
	for _, m := range all {
		record := m.Snapshot()
		pod := types.UID(record.GetStatus().GetPod().GetUid())
		if pod == "" {
			continue
		}
		there[pod] = true
		if w.sent[pod] == record {
			continue
		}
		if err := w.send(&nodev1.WatchVMsResponse{Update: &nodev1.WatchVMsResponse_Vm{Vm: outline(record)}}); err != nil {
			return err
		}
		w.sent[pod] = record
	}
	for pod, record := range w.sent {
		if there[pod] {
			continue
		}
		if err := w.send(&nodev1.WatchVMsResponse{Update: &nodev1.WatchVMsResponse_Gone{Gone: record.GetStatus().GetPod()}}); err != nil {
			return err
		}
		delete(w.sent, pod)
	}
	return nil
}

// outline is a VM as those see it who watch many: bounded, and without what the user wrote,
// which they have.
func outline(record *nodev1.VirtualMachine) *nodev1.VirtualMachine {
	out := &nodev1.VirtualMachine{Id: record.GetId(), Status: proto.CloneOf(record.GetStatus())}
	if s := out.Status.EffectiveSpec; s != nil {
		s.CloudInit, s.Labels, s.Boot = nil, nil, nil
	}
	if proto.Size(out) > maxWatched {
		out.Status.EffectiveSpec = nil
	}
	if proto.Size(out) > maxWatched { // a pod's words, as in its VMM's version
		s := out.Status
		out.Status = &nodev1.VirtualMachineStatus{
			State: s.State, Pod: s.Pod, Message: fault.Clip(s.Message, fault.MaxMessage),
			CreatedAt: s.CreatedAt, StartedAt: s.StartedAt, EndedAt: s.EndedAt,
			PauseReason: s.PauseReason, EndReason: s.EndReason, Image: s.Image,
		}
	}
	return out
}
