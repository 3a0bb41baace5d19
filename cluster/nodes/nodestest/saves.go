package nodestest

import (
	"context"
	"path"
	"strings"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// reporter is the key of what Report calls.
type reporter struct{}

// Report says how many bytes a save has written. ctx is that of what SetSave has set.
func Report(ctx context.Context, bytes uint64) error {
	return ctx.Value(reporter{}).(func(uint64) error)(bytes)
}

// SetSave has f carry out saves; nil: they are refused. Its context ends when the caller goes away:
// f undoes the save then, and returns an error.
func (a *Agent) SetSave(f func(context.Context, *nodev1.SaveVMRequest) (*nodev1.SaveResult, error)) {
	a.change(func() { a.save = f })
}

// SetSuspend has f ask guests to suspend themselves; nil: that is refused.
func (a *Agent) SetSuspend(f func(context.Context, *nodev1.SuspendVMRequest) error) {
	a.change(func() { a.suspend = f })
}

// SaveVM refuses what an agent refuses: a VM that it has not, that does not run or is being saved,
// and a directory that is none.
func (a *Agent) SaveVM(r *nodev1.SaveVMRequest, stream grpc.ServerStreamingServer[nodev1.SaveVMResponse]) error {
	before, save, err := a.begin(r)
	if err != nil {
		return err
	}
	report := func(done uint64) error {
		return stream.Send(&nodev1.SaveVMResponse{Progress: &nodev1.Progress{Step: "saving memory", BytesDone: done, BytesTotal: 1 << 30}})
	}
	result, err := (*nodev1.SaveResult)(nil), report(1)
	if err == nil {
		result, err = save(context.WithValue(stream.Context(), reporter{}, report), r)
	}
	if err != nil {
		a.Set(before) // the guest goes on
		return err
	}
	ended := proto.CloneOf(before)
	ended.Status.State, ended.Status.EndReason = nodev1.State_STATE_SAVED, nodev1.EndReason_END_REASON_SAVED
	ended.Status.Image = &nodev1.ImageReference{Path: r.GetDirectory(), ImageId: result.GetImageId()}
	a.Set(ended)
	return stream.Send(&nodev1.SaveVMResponse{Vm: ended, Result: result})
}

// begin notes that a VM is being saved, and returns it as it was before.
func (a *Agent) begin(r *nodev1.SaveVMRequest) (before *nodev1.VirtualMachine, save func(context.Context, *nodev1.SaveVMRequest) (*nodev1.SaveResult, error), err error) {
	bare := r.GetDirectory() != "" && !strings.Contains(r.GetDirectory(), "/")
	clean := path.IsAbs(r.GetDirectory()) && path.Clean(r.GetDirectory()) == r.GetDirectory()
	a.change(func() {
		vm := a.named(r.GetName())
		switch {
		case a.save == nil:
			err = status.Error(codes.Unimplemented, "a test has not said how VMs are saved")
		case vm == nil:
			err = status.Errorf(codes.NotFound, "vm %s: there is none", r.GetName())
		case r.GetAttachmentPodUid() != "" && !bare, r.GetAttachmentPodUid() == "" && !clean:
			err = status.Errorf(codes.InvalidArgument, "directory: %q", r.GetDirectory())
		case vm.Status.State != nodev1.State_STATE_RUNNING && vm.Status.State != nodev1.State_STATE_PAUSED:
			err = status.Errorf(codes.FailedPrecondition, "vm %s is %s", r.GetName(), vm.Status.State)
		default:
			before, save = vm, a.save
			saving := proto.CloneOf(vm)
			saving.Status.State = nodev1.State_STATE_SAVING
			a.vms[vm.Status.Pod.Uid] = saving
		}
	})
	return before, save, err
}

// named is a VM by its name in the API; a.mu is held.
func (a *Agent) named(name string) *nodev1.VirtualMachine {
	for _, vm := range a.vms {
		if p := vm.GetStatus().GetPod(); p.GetNamespace()+"/"+p.GetName() == name {
			return vm
		}
	}
	return nil
}

// SuspendVM refuses a VM that the agent has not.
func (a *Agent) SuspendVM(ctx context.Context, r *nodev1.SuspendVMRequest) (*nodev1.SuspendVMResponse, error) {
	a.mu.Lock()
	vm, suspend := a.named(r.GetName()), a.suspend
	a.mu.Unlock()
	switch {
	case suspend == nil:
		return nil, status.Error(codes.Unimplemented, "a test has not said how guests suspend themselves")
	case vm == nil:
		return nil, status.Errorf(codes.NotFound, "vm %s: there is none", r.GetName())
	}
	if err := suspend(ctx, r); err != nil {
		return nil, err
	}
	return &nodev1.SuspendVMResponse{Vm: vm}, nil
}

// GetVM has a VM as the agent has it now.
func (a *Agent) GetVM(_ context.Context, r *nodev1.GetVMRequest) (*nodev1.GetVMResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	vm := a.named(r.GetName())
	if vm == nil {
		return nil, status.Errorf(codes.NotFound, "vm %s: there is none", r.GetName())
	}
	return &nodev1.GetVMResponse{Vm: vm}, nil
}
