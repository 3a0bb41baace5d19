package api

import (
	"context"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/selector"
	"github.com/vmlet/vmlet/agent/vm"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// NodeService serves the API of that name: it translates between messages and what the
// VMs' manager offers. Errors get their codes in the interceptors.
type NodeService struct {
	nodev1.UnimplementedNodeServiceServer
	VMs  *vm.Manager
	Node *node.Node
	// Pods are the VMs of pods; nil: the agent runs none.
	Pods PodVMs
	// Version is the agent's; NodeName returns the node's name in Kubernetes, or else the
	// machine's.
	Version  string
	NodeName func() (string, error)
	// Machine is the one that the agent runs on (package machineid); empty: it has no UUID.
	Machine string

	consoles turns
}

// CreateVM keeps a specification and starts nothing.
func (s *NodeService) CreateVM(ctx context.Context, r *nodev1.CreateVMRequest) (*nodev1.CreateVMResponse, error) {
	vm, err := s.VMs.Create(ctx, r.GetSpec())
	return &nodev1.CreateVMResponse{Vm: vm}, err
}

// GetVM returns the VM of a name.
func (s *NodeService) GetVM(ctx context.Context, r *nodev1.GetVMRequest) (*nodev1.GetVMResponse, error) {
	m, err := s.VMs.Get(ctx, r.GetName())
	if err != nil {
		return nil, err
	}
	return &nodev1.GetVMResponse{Vm: m.Snapshot()}, nil
}

// ListVMs returns the VMs that a label selector chooses.
func (s *NodeService) ListVMs(_ context.Context, r *nodev1.ListVMsRequest) (*nodev1.ListVMsResponse, error) {
	wanted, err := selector.Parse(r.GetLabelSelector())
	if err != nil {
		return nil, fault.Invalid("labelSelector", "%v", err)
	}
	list := new(nodev1.ListVMsResponse)
	for _, m := range s.VMs.All() {
		if vm := m.Snapshot(); wanted.Matches(vm.GetSpec().GetLabels()) {
			list.Vms = append(list.Vms, vm)
		}
	}
	return list, nil
}

// StartVM boots a VM, or restores one that is saved. It streams progress, and then the VM.
func (s *NodeService) StartVM(r *nodev1.StartVMRequest, stream grpc.ServerStreamingServer[nodev1.StartVMResponse]) error {
	report := func(p *nodev1.Progress) error { return stream.Send(&nodev1.StartVMResponse{Progress: p}) }
	vm, err := s.VMs.Start(stream.Context(), r.GetName(), vm.StartOptions{Cold: r.GetCold(), Paused: r.GetPaused()}, reporter(report))
	if err != nil {
		return err
	}
	return stream.Send(&nodev1.StartVMResponse{Vm: vm})
}

// SaveVM writes a memory image. It streams progress, and then the VM and the result.
func (s *NodeService) SaveVM(r *nodev1.SaveVMRequest, stream grpc.ServerStreamingServer[nodev1.SaveVMResponse]) error {
	report := func(p *nodev1.Progress) error { return stream.Send(&nodev1.SaveVMResponse{Progress: p}) }
	if err := s.checkSave(stream.Context(), r.GetName()); err != nil {
		return err
	}
	options := place.SaveOptions{Directory: r.GetDirectory(), KeepRunning: r.GetKeepRunning(), Attachment: r.GetAttachmentPodUid()}
	vm, result, err := s.VMs.Saver.Save(stream.Context(), r.GetName(), options, reporter(report))
	if err != nil {
		return err
	}
	return stream.Send(&nodev1.SaveVMResponse{Vm: vm, Result: result})
}

// checkSave refuses callers from the network who would name a folder of the node: that of a
// pod's VM is its pod's.
func (s *NodeService) checkSave(ctx context.Context, name string) error {
	if !fromNetwork(ctx) {
		return nil
	}
	m, err := s.VMs.Get(ctx, name)
	if err == nil && m.Snapshot().GetStatus().GetPod() == nil {
		return fault.Errorf(codes.PermissionDenied, "%s is in no pod: such VMs are saved over the node's own socket", contract.ThisVM(name))
	}
	return err
}

// RestoreVM makes a VM from a memory image. It streams progress, and then the VM.
func (s *NodeService) RestoreVM(r *nodev1.RestoreVMRequest, stream grpc.ServerStreamingServer[nodev1.RestoreVMResponse]) error {
	report := func(p *nodev1.Progress) error { return stream.Send(&nodev1.RestoreVMResponse{Progress: p}) }
	vm, err := s.VMs.Restore(stream.Context(), vm.RestoreOptions{
		Directory: r.GetDirectory(), Name: r.GetName(), Lazy: r.GetLazy(), Paused: r.GetPaused(),
		AllowChangedDisks: r.GetAllowChangedDisks(), NewIdentity: r.GetNewIdentity(),
	}, reporter(report))
	if err != nil {
		return err
	}
	return stream.Send(&nodev1.RestoreVMResponse{Vm: vm})
}

// reporter hands progress on. That a caller doesn't take it any more is no
// reason to stop: the end of the call's context is.
func reporter(send func(*nodev1.Progress) error) func(shim.Progress) {
	return func(p shim.Progress) {
		_ = send(&nodev1.Progress{Step: p.Step, BytesDone: p.Done, BytesTotal: p.Total})
	}
}

// PauseVM stops a running guest.
func (s *NodeService) PauseVM(ctx context.Context, r *nodev1.PauseVMRequest) (*nodev1.PauseVMResponse, error) {
	vm, err := s.VMs.Power.Pause(ctx, r.GetName())
	return &nodev1.PauseVMResponse{Vm: vm}, err
}

// ResumeVM lets a paused guest run.
func (s *NodeService) ResumeVM(ctx context.Context, r *nodev1.ResumeVMRequest) (*nodev1.ResumeVMResponse, error) {
	vm, err := s.VMs.Power.Resume(ctx, r.GetName(), r.GetAllowDamaged())
	return &nodev1.ResumeVMResponse{Vm: vm}, err
}

// ResetVM presses the reset button.
func (s *NodeService) ResetVM(ctx context.Context, r *nodev1.ResetVMRequest) (*nodev1.ResetVMResponse, error) {
	vm, err := s.VMs.Power.Reset(ctx, r.GetName())
	return &nodev1.ResetVMResponse{Vm: vm}, err
}

// StopVM presses the power button, and kills the VM after its grace period.
func (s *NodeService) StopVM(ctx context.Context, r *nodev1.StopVMRequest) (*nodev1.StopVMResponse, error) {
	var grace *time.Duration
	if r.GracePeriodMs != nil {
		d := time.Duration(r.GetGracePeriodMs()) * time.Millisecond
		grace = &d
	}
	vm, killed, err := s.VMs.Power.Stop(ctx, r.GetName(), grace)
	return &nodev1.StopVMResponse{Vm: vm, Killed: killed}, err
}

// ResizeVM changes the number of vCPUs and the size of the memory.
func (s *NodeService) ResizeVM(ctx context.Context, r *nodev1.ResizeVMRequest) (*nodev1.ResizeVMResponse, error) {
	vm, has, err := s.VMs.Hotplug.Resize(ctx, r)
	return &nodev1.ResizeVMResponse{Vm: vm, MemoryBytes: has}, err
}

// Attach adds a disk or a network interface to a VM.
func (s *NodeService) Attach(ctx context.Context, r *nodev1.AttachRequest) (*nodev1.AttachResponse, error) {
	vm, device, err := s.VMs.Hotplug.Attach(ctx, r)
	return &nodev1.AttachResponse{Vm: vm, Device: device}, err
}

// Detach removes a disk or a network interface from a VM.
func (s *NodeService) Detach(ctx context.Context, r *nodev1.DetachRequest) (*nodev1.DetachResponse, error) {
	vm, err := s.VMs.Hotplug.Detach(ctx, r.GetName(), r.GetDevice())
	return &nodev1.DetachResponse{Vm: vm}, err
}

// KillVM ends a VM at once.
func (s *NodeService) KillVM(ctx context.Context, r *nodev1.KillVMRequest) (*nodev1.KillVMResponse, error) {
	vm, err := s.VMs.Power.Kill(ctx, r.GetName())
	return &nodev1.KillVMResponse{Vm: vm}, err
}

// DeleteVM removes the record of a VM that does not run.
func (s *NodeService) DeleteVM(ctx context.Context, r *nodev1.DeleteVMRequest) (*nodev1.DeleteVMResponse, error) {
	return &nodev1.DeleteVMResponse{}, s.VMs.Delete(ctx, r.GetName())
}

// GetNode returns the hypervisors and VMMs of the node. A VMM that can't be asked is listed
// with the reason.
func (s *NodeService) GetNode(ctx context.Context, _ *nodev1.GetNodeRequest) (*nodev1.GetNodeResponse, error) {
	name, err := s.NodeName()
	if err != nil {
		return nil, err
	}
	out := &nodev1.GetNodeResponse{Name: name, AgentVersion: s.Version}
	for _, h := range s.Node.Hypervisors.All() {
		status := h.Check(ctx)
		out.Hypervisors = append(out.Hypervisors, &nodev1.HypervisorStatus{
			Name: h.Name(), State: status.Level.State(), Reason: status.Sentence(),
		})
	}
	for _, v := range s.Node.VMMs {
		// One that can't be asked is listed all the same, without a version.
		info, err := v.Info(ctx)
		reason := vmm.Sentence(info.Capabilities.GetReason(), info.Capabilities.GetRemedy())
		if err != nil {
			remedy, advice := vmm.Remedy(v.Name(), err)
			reason = vmm.Sentence(err.Error(), remedy) + advice.String()
		}
		out.Vmms = append(out.Vmms, &nodev1.Vmm{Name: v.Name(), Version: info.Version, Binary: info.Binary, LazyRestore: info.LazyRestore, Reason: reason})
	}
	return out, ctx.Err()
}

// GetVmmName returns the VMM of VMs whose specification names none.
func (s *NodeService) GetVmmName(ctx context.Context, _ *nodev1.GetVmmNameRequest) (*nodev1.GetVmmNameResponse, error) {
	v, err := s.Node.DefaultVMM(ctx)
	if err != nil {
		return nil, err
	}
	return &nodev1.GetVmmNameResponse{Name: v.Name()}, nil
}

// GetVmmVersion returns the version of the named VMM; default: that of GetVmmName.
func (s *NodeService) GetVmmVersion(ctx context.Context, r *nodev1.GetVmmVersionRequest) (*nodev1.GetVmmVersionResponse, error) {
	v, err := s.Node.DefaultVMM(ctx)
	if name := r.GetName(); name != "" && name != spec.Auto {
		v, err = s.Node.VMM(name)
	}
	if err != nil {
		return nil, err
	}
	info, err := v.Info(ctx)
	if err != nil {
		return nil, fault.Errorf(codes.Unavailable, "VMM %s: %w", v.Name(), err)
	}
	return &nodev1.GetVmmVersionResponse{Version: info.Version}, nil
}
