package driverkit

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/remote/wire"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// describe asks the VMM's program.
func describe(ctx context.Context, c *connection, _ *wire.Call) (any, []*os.File, error) {
	info, err := c.stack.VMM.Info(ctx)
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	c.info = &info
	c.mu.Unlock()
	capabilities, err := protojson.Marshal(info.Capabilities)
	if err != nil {
		return nil, nil, err
	}
	out := wire.DescribeResponse{
		Name: info.Name, Version: info.Version, Binary: info.Binary, LazyRestore: info.LazyRestore, Files: info.Files, Passing: info.Passing,
		Capabilities: capabilities,
	}
	if _, measured := c.stack.VMM.(vmm.MemoryCoster); measured {
		m := vmm.MemoryCostsOf(c.stack.VMM)
		out.MemoryCosts = &wire.MemoryCosts{Measured: m.Measured, Note: m.Note, Base: m.Base, VCPU: m.VCPU, Disk: m.Disk, Network: m.Network, Device: m.Device, Video: m.Video, USB: m.USB, Display: m.Display}
	}
	if n, names := c.stack.VMM.(vmm.ProgramNamer); names {
		out.ProgramNames = n.ProgramNames()
	}
	return out, nil, nil
}

// known is what the program said; it is asked once for each connection, unless the other side
// asks again.
func (c *connection) known(ctx context.Context) (vmm.Info, error) {
	c.mu.Lock()
	info := c.info
	c.mu.Unlock()
	if info != nil {
		return *info, nil
	}
	fresh, err := c.stack.VMM.Info(ctx)
	if err != nil {
		return vmm.Info{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.info = &fresh
	return fresh, nil
}

// specification refuses what this driver has never heard of: somebody has asked for it, and
// it must not be left out in silence.
func specification(document json.RawMessage) (*specv1.VirtualMachineSpec, error) {
	s := new(specv1.VirtualMachineSpec)
	if len(document) == 0 {
		return s, nil
	}
	if err := protojson.Unmarshal(document, s); err != nil {
		return nil, wire.Errorf(wire.CodeInvalid, "the specification has something that this driver doesn't know: %v: leave it out, or use a newer driver", err)
	}
	return s, nil
}

func defaults(_ context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	var request wire.DefaultsRequest
	if err := call.Decode(&request); err != nil {
		return nil, nil, err
	}
	d := vmm.DefaultsOf(c.stack.VMM, request.Architecture)
	out := wire.DefaultsResponse{Watchdog: d.Watchdog, TPM: d.TPM, CDROMBus: d.CDROMBus, ErrorPolicy: d.Disk.GetErrorPolicy(), UserNetwork: d.UserNetwork}
	t := c.stack.VMM.Traits(request.Architecture)
	out.Traits = &wire.Traits{MachineTypes: t.MachineTypes, Disks: t.Disks, Video: t.Video, WithoutEntropy: t.WithoutEntropy, SMBIOS: t.SMBIOS}
	if d.Layer == nil && d.Disk == nil {
		return out, nil, nil
	}
	layer := new(specv1.VirtualMachineSpec)
	proto.Merge(layer, d.Layer)
	if d.Disk != nil {
		layer.Disks = []*specv1.Disk{d.Disk}
	}
	var err error
	out.Layer, err = protojson.Marshal(layer)
	return out, nil, err
}

func validate(_ context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	var request wire.ValidateRequest
	if err := call.Decode(&request); err != nil {
		return nil, nil, err
	}
	s, err := specification(request.Spec)
	if err != nil {
		return nil, nil, err
	}
	var out wire.ValidateResponse
	if v, judges := c.stack.VMM.(vmm.Validator); judges {
		out.Faults = encodedFaults(v.Validate(s, request.Architecture))
	}
	return out, nil, nil
}

// launched is the request as a planner wants it.
func (c *connection) launched(ctx context.Context, l *wire.Launch) (vmm.PlanRequest, error) {
	if l == nil {
		return vmm.PlanRequest{}, wire.Errorf(wire.CodeInvalid, "launch is missing")
	}
	s, err := specification(l.Spec)
	if err != nil {
		return vmm.PlanRequest{}, err
	}
	info, err := c.known(ctx)
	if err != nil {
		return vmm.PlanRequest{}, err
	}
	r := vmm.PlanRequest{
		ID: l.ID, Spec: s, Hypervisor: l.Hypervisor, Accelerator: l.Accelerator, CPUQuirks: l.CPUQuirks, Info: info,
		HypervisorDevice: l.HypervisorDevice, MemoryPath: l.MemoryPath, StateDir: l.StateFolder, BlockDevices: l.BlockDevices,
		Taps: l.Taps, VhostNet: l.VhostNet, Seed: l.Seed, HotplugFolders: l.HotplugFolders, Paused: l.Paused,
	}
	if u := l.User; u != nil {
		r.User = &plan.User{UID: u.UID, GID: u.GID, Groups: u.Groups}
	}
	if i := l.Image; i != nil {
		r.Image = &vmm.Image{Directory: i.Directory, Lazy: i.Lazy, AllowChangedDisks: i.AllowChangedDisks}
		r.Image.Manifest, err = manifest(i.Manifest)
	}
	return r, err
}

func manifest(document json.RawMessage) (*memory.Manifest, error) {
	m := new(memory.Manifest)
	if len(document) == 0 {
		return m, nil
	}
	if err := json.Unmarshal(document, m); err != nil {
		return nil, wire.Errorf(wire.CodeInvalid, "the image's manifest: %v", err)
	}
	return m, nil
}

func planned(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	var request wire.PlanRequest
	if err := call.Decode(&request); err != nil {
		return nil, nil, err
	}
	r, err := c.launched(ctx, request.Launch)
	if err != nil {
		return nil, nil, err
	}
	p, err := c.stack.VMM.Plan(r)
	if err != nil {
		return nil, nil, err
	}
	var out wire.PlanResponse
	out.Plan, err = json.Marshal(p)
	return out, nil, err
}

func manifested(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	var request wire.ManifestRequest
	if err := call.Decode(&request); err != nil {
		return nil, nil, err
	}
	r, err := c.launched(ctx, request.Launch)
	if err != nil {
		return nil, nil, err
	}
	m, err := c.stack.VMM.Manifest(r)
	if err != nil {
		return nil, nil, err
	}
	var out wire.ManifestResponse
	out.Manifest, err = json.Marshal(m)
	return out, nil, err
}

func checkImage(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	var request wire.CheckImageRequest
	if err := call.Decode(&request); err != nil {
		return nil, nil, err
	}
	m, err := manifest(request.Manifest)
	if err != nil {
		return nil, nil, err
	}
	return nil, nil, c.stack.VMM.CheckImage(ctx, m)
}

func refuseSave(_ context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	r, refuses := c.stack.VMM.(vmm.SaveRefuser)
	if !refuses {
		return wire.RefuseSaveResponse{}, nil, nil
	}
	s, err := asked(call)
	if err != nil {
		return nil, nil, err
	}
	return wire.RefuseSaveResponse{Faults: encodedFaults(r.RefuseSave(s))}, nil, nil
}

func refuseSuspend(_ context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	s, suspends := c.stack.VMM.(vmm.Suspender)
	if !suspends {
		return nil, nil, wire.Errorf(wire.CodeUnsupported, "%s has no channel to an agent in the guest", c.stack.VMM.Name())
	}
	vm, err := asked(call)
	if err != nil {
		return nil, nil, err
	}
	var out wire.RefuseSuspendResponse
	if err := s.RefuseSuspend(vm); err != nil {
		out.Reason, out.Faults = err.Error(), wire.FaultsOf(contract.FaultsOf(err))
	}
	return out, nil, nil
}

// asked is the specification of the VM that is to be saved or suspended.
func asked(call *wire.Call) (*specv1.VirtualMachineSpec, error) {
	var request wire.RefuseSaveRequest
	if err := call.Decode(&request); err != nil {
		return nil, err
	}
	return specification(request.Spec)
}

// plugging reads a request for a device that comes or goes.
func (c *connection) plugging(ctx context.Context, call *wire.Call) (vmm.Plugger, vmm.PlugRequest, error) {
	plugger, can := c.stack.VMM.(vmm.Plugger)
	if !can {
		return nil, vmm.PlugRequest{}, fmt.Errorf("devices of %s can't come and go: %w", c.stack.VMM.Name(), wire.Errorf(wire.CodeUnsupported, "no feature %q", wire.FeaturePlug))
	}
	var request wire.PlanAttachRequest
	if err := call.Decode(&request); err != nil {
		return nil, vmm.PlugRequest{}, err
	}
	if request.Plug == nil {
		return nil, vmm.PlugRequest{}, wire.Errorf(wire.CodeInvalid, "plug is missing")
	}
	r := vmm.PlugRequest{Network: request.Plug.Network, Index: request.Plug.Index}
	var err error
	if r.PlanRequest, err = c.launched(ctx, request.Plug.Launch); err != nil {
		return nil, vmm.PlugRequest{}, err
	}
	devices := len(r.Spec.GetDisks())
	if r.Network {
		devices = len(r.Spec.GetNetworks())
	}
	if r.Index < 0 || r.Index >= devices {
		return nil, vmm.PlugRequest{}, wire.Errorf(wire.CodeInvalid, "index %d of %d devices", r.Index, devices)
	}
	r.Manifest, err = manifest(request.Plug.Manifest)
	return plugger, r, err
}

func planAttach(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	plugger, r, err := c.plugging(ctx, call)
	if err != nil {
		return nil, nil, err
	}
	a, err := plugger.PlanAttach(r)
	if err != nil {
		return nil, nil, err
	}
	var out wire.PlanAttachResponse
	out.Attachment, err = json.Marshal(a)
	return out, nil, err
}

func planDetach(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	plugger, r, err := c.plugging(ctx, call)
	if err != nil {
		return nil, nil, err
	}
	d, err := plugger.PlanDetach(r)
	if err != nil {
		return nil, nil, err
	}
	var out wire.PlanDetachResponse
	out.Detachment, err = json.Marshal(d)
	return out, nil, err
}
