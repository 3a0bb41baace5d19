package agent

import (
	"context"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/agent/selector"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// api is the NodeService: it translates between messages and the agent.
// Errors get their codes in the interceptors.
type api struct {
	nodev1.UnimplementedNodeServiceServer
	manager *Manager
	node    *node.Node
	// version is the agent's, and nodeName that of the node.
	version  string
	nodeName func() (string, error)
}

func (s *api) CreateVM(ctx context.Context, r *nodev1.CreateVMRequest) (*nodev1.CreateVMResponse, error) {
	vm, err := s.manager.create(ctx, r.GetSpec())
	return &nodev1.CreateVMResponse{Vm: vm}, err
}

func (s *api) GetVM(_ context.Context, r *nodev1.GetVMRequest) (*nodev1.GetVMResponse, error) {
	m, err := s.manager.Get(r.GetName())
	if err != nil {
		return nil, err
	}
	return &nodev1.GetVMResponse{Vm: m.snapshot()}, nil
}

func (s *api) ListVMs(_ context.Context, r *nodev1.ListVMsRequest) (*nodev1.ListVMsResponse, error) {
	wanted, err := selector.Parse(r.GetLabelSelector())
	if err != nil {
		return nil, fault.Invalid("labelSelector", "%v", err)
	}
	list := new(nodev1.ListVMsResponse)
	for _, m := range s.manager.All() {
		if vm := m.snapshot(); wanted.Matches(vm.GetSpec().GetLabels()) {
			list.Vms = append(list.Vms, vm)
		}
	}
	return list, nil
}

func (s *api) StartVM(r *nodev1.StartVMRequest, stream grpc.ServerStreamingServer[nodev1.StartVMResponse]) error {
	report := func(p *nodev1.Progress) error { return stream.Send(&nodev1.StartVMResponse{Progress: p}) }
	vm, err := s.manager.start(stream.Context(), r.GetName(), startOptions{cold: r.GetCold(), paused: r.GetPaused()}, reporter(report))
	if err != nil {
		return err
	}
	return stream.Send(&nodev1.StartVMResponse{Vm: vm})
}

func (s *api) SaveVM(r *nodev1.SaveVMRequest, stream grpc.ServerStreamingServer[nodev1.SaveVMResponse]) error {
	report := func(p *nodev1.Progress) error { return stream.Send(&nodev1.SaveVMResponse{Progress: p}) }
	options := SaveOptions{Directory: r.GetDirectory(), KeepRunning: r.GetKeepRunning()}
	vm, result, err := s.manager.save(stream.Context(), r.GetName(), options, reporter(report))
	if err != nil {
		return err
	}
	return stream.Send(&nodev1.SaveVMResponse{Vm: vm, Result: result})
}

func (s *api) RestoreVM(r *nodev1.RestoreVMRequest, stream grpc.ServerStreamingServer[nodev1.RestoreVMResponse]) error {
	report := func(p *nodev1.Progress) error { return stream.Send(&nodev1.RestoreVMResponse{Progress: p}) }
	vm, err := s.manager.restore(stream.Context(), restoreOptions{
		directory: r.GetDirectory(), name: r.GetName(), lazy: r.GetLazy(), paused: r.GetPaused(),
		allowChangedDisks: r.GetAllowChangedDisks(), newIdentity: r.GetNewIdentity(),
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

func (s *api) PauseVM(ctx context.Context, r *nodev1.PauseVMRequest) (*nodev1.PauseVMResponse, error) {
	vm, err := s.manager.pause(ctx, r.GetName())
	return &nodev1.PauseVMResponse{Vm: vm}, err
}

func (s *api) ResumeVM(ctx context.Context, r *nodev1.ResumeVMRequest) (*nodev1.ResumeVMResponse, error) {
	vm, err := s.manager.resume(ctx, r.GetName(), r.GetAllowDamaged())
	return &nodev1.ResumeVMResponse{Vm: vm}, err
}

func (s *api) ResetVM(ctx context.Context, r *nodev1.ResetVMRequest) (*nodev1.ResetVMResponse, error) {
	vm, err := s.manager.reset(ctx, r.GetName())
	return &nodev1.ResetVMResponse{Vm: vm}, err
}

func (s *api) StopVM(ctx context.Context, r *nodev1.StopVMRequest) (*nodev1.StopVMResponse, error) {
	var grace *time.Duration
	if r.GracePeriodMs != nil {
		d := time.Duration(r.GetGracePeriodMs()) * time.Millisecond
		grace = &d
	}
	vm, killed, err := s.manager.stop(ctx, r.GetName(), grace)
	return &nodev1.StopVMResponse{Vm: vm, Killed: killed}, err
}

func (s *api) ResizeVM(ctx context.Context, r *nodev1.ResizeVMRequest) (*nodev1.ResizeVMResponse, error) {
	vm, has, err := s.manager.resize(ctx, r)
	return &nodev1.ResizeVMResponse{Vm: vm, MemoryBytes: has}, err
}

func (s *api) Attach(ctx context.Context, r *nodev1.AttachRequest) (*nodev1.AttachResponse, error) {
	vm, device, err := s.manager.attach(ctx, r)
	return &nodev1.AttachResponse{Vm: vm, Device: device}, err
}

func (s *api) Detach(ctx context.Context, r *nodev1.DetachRequest) (*nodev1.DetachResponse, error) {
	vm, err := s.manager.detach(ctx, r.GetName(), r.GetDevice())
	return &nodev1.DetachResponse{Vm: vm}, err
}

func (s *api) KillVM(ctx context.Context, r *nodev1.KillVMRequest) (*nodev1.KillVMResponse, error) {
	vm, err := s.manager.kill(ctx, r.GetName())
	return &nodev1.KillVMResponse{Vm: vm}, err
}

func (s *api) DeleteVM(ctx context.Context, r *nodev1.DeleteVMRequest) (*nodev1.DeleteVMResponse, error) {
	return &nodev1.DeleteVMResponse{}, s.manager.delete(ctx, r.GetName())
}

func (s *api) GetNode(ctx context.Context, _ *nodev1.GetNodeRequest) (*nodev1.GetNodeResponse, error) {
	name, err := s.nodeName()
	if err != nil {
		return nil, err
	}
	out := &nodev1.GetNodeResponse{Name: name, AgentVersion: s.version}
	for _, h := range s.node.Hypervisors.All() {
		status := h.Check(ctx)
		out.Hypervisors = append(out.Hypervisors, &nodev1.HypervisorStatus{
			Name: h.Name(), Level: status.Level.String(), Reason: status.Sentence(),
		})
	}
	for _, v := range s.node.VMMs {
		// One that can't be asked is listed all the same, without a version.
		info, err := v.Info(ctx)
		reason := vmm.Sentence(info.Capabilities.GetReason(), info.Capabilities.GetRemedy())
		if err != nil {
			reason = vmm.Sentence(err.Error(), vmm.Remedy(v.Name(), err))
		}
		out.Vmms = append(out.Vmms, &nodev1.Vmm{Name: v.Name(), Version: info.Version, Binary: info.Binary, LazyRestore: info.LazyRestore, Reason: reason})
	}
	return out, ctx.Err()
}

func (s *api) GetVmmName(ctx context.Context, _ *nodev1.GetVmmNameRequest) (*nodev1.GetVmmNameResponse, error) {
	v, err := s.node.DefaultVMM(ctx)
	if err != nil {
		return nil, err
	}
	return &nodev1.GetVmmNameResponse{Name: v.Name()}, nil
}

func (s *api) GetVmmVersion(ctx context.Context, r *nodev1.GetVmmVersionRequest) (*nodev1.GetVmmVersionResponse, error) {
	v, err := s.node.DefaultVMM(ctx)
	if name := r.GetName(); name != "" && name != spec.Auto {
		v, err = s.node.VMM(name)
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
