package vm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/plan"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

const (
	// detachPatience is how long a guest may take to let a device go: PCI Express's
	// attention button alone has five seconds.
	detachPatience = 30 * time.Second
	// detachPaused is for a guest that is paused, and can't.
	detachPaused = time.Second
)

// Hotplug changes the hardware of VMs, of those that run, too.
type Hotplug struct {
	vms      *Registry
	platform *Platform
	own      *place.Resources
}

// plugging is one device that comes or goes.
type plugging struct {
	*Hotplug
	m *VM
	// live is nil if nothing runs.
	live    *live
	plugger vmm.Plugger
	// complete is the specification as it runs, or would.
	complete *specv1.VirtualMachineSpec
}

// plug takes a VM for a change of its devices.
func (h *Hotplug) plug(ctx context.Context, name string, op lifecycle.Operation) (*plugging, func(), error) {
	m, done, err := h.vms.take(ctx, name, op)
	if err != nil {
		return nil, nil, err
	}
	p := &plugging{Hotplug: h, m: m}
	if err := p.begin(); err != nil {
		done()
		return nil, nil, contract.Errorf("%s: %w", contract.ThisVM(name), err)
	}
	return p, done, nil
}

func (p *plugging) begin() error {
	vm := p.m.Snapshot()
	if !lifecycle.Live(vm.GetStatus().GetState()) {
		p.complete = p.platform.completed(vm)
		return nil
	}
	if p.live = p.m.running(); p.live == nil {
		return endedMeanwhile(p.m)
	}
	var can bool
	if p.plugger, can = p.live.vmm.(vmm.Plugger); !can {
		return fault.InField(codes.FailedPrecondition, "vmm", "devices can't come and go while %s runs: stop the VM, change its devices and start it again", p.live.lease.VMM)
	}
	p.complete = proto.CloneOf(vm.GetStatus().GetEffectiveSpec())
	spec.FixSlots(p.complete)
	return nil
}

// Attach gives a VM one more device and returns its name.
func (h *Hotplug) Attach(ctx context.Context, r *nodev1.AttachRequest) (*nodev1.VirtualMachine, string, error) {
	device := &deviceNote{disk: proto.CloneOf(r.GetDisk()), network: proto.CloneOf(r.GetNetwork())}
	if device.disk == nil && device.network == nil {
		return nil, "", fault.Invalid("device", "is missing: want a disk or a network")
	}
	p, done, err := h.plug(ctx, r.GetName(), lifecycle.Attach)
	if err != nil {
		return nil, "", err
	}
	defer done()
	if is, err := p.isThere(device); is || err != nil {
		return p.m.Snapshot(), device.name(), err
	}
	d, err := p.attach(ctx, device)
	if err != nil {
		return nil, "", contract.Errorf("attaching to %s: %w", contract.ThisVM(r.GetName()), err)
	}
	faultpoint.Reach("agent.attach.attached")
	if err := p.m.replug(d, proto.CloneOf(p.complete)); err != nil {
		return nil, "", err
	}
	return p.m.Snapshot(), d.Attached.name(), nil
}

// with returns the complete specification with the device in it, at its end or in place
// of the one with that index, and completed.
func (p *plugging) with(device *deviceNote, at *deviceAt) (*specv1.VirtualMachineSpec, deviceAt) {
	s := proto.CloneOf(p.complete)
	place := deviceAt{network: device.network != nil}
	switch {
	case at != nil && at.network:
		place = *at
		s.Networks[at.index] = proto.CloneOf(device.network)
	case at != nil:
		place = *at
		s.Disks[at.index] = proto.CloneOf(device.disk)
	case place.network:
		place.index = len(s.Networks)
		s.Networks = append(s.Networks, proto.CloneOf(device.network))
	default:
		place.index = len(s.Disks)
		s.Disks = append(s.Disks, proto.CloneOf(device.disk))
	}
	target := spec.Target{ID: p.m.Snapshot().GetId(), Hypervisor: s.GetHypervisor(), VMM: s.GetVmm(), Arch: p.platform.arch}
	return spec.Default(s, target, nil), place
}

// isThere tells whether the VM has the very device. Another one under its name, or
// over its file, is an error.
func (p *plugging) isThere(device *deviceNote) (bool, error) {
	if device.name() == "" {
		return false, p.pathFree(device)
	}
	found := findDevice(p.complete, device.name())
	if len(found) == 0 {
		return false, p.pathFree(device)
	}
	at := found[0]
	taken := fault.Errorf(codes.AlreadyExists, "%s has another device %q, %s: detach that first, or choose another name", contract.ThisVM(p.m.name), device.name(), at.field())
	if len(found) > 1 || at.network != (device.network != nil) {
		return false, taken
	}
	again := &deviceNote{disk: proto.CloneOf(device.disk), network: proto.CloneOf(device.network)}
	if at.network {
		old := p.complete.Networks[at.index]
		again.network.Slot = old.Slot
		if again.network.Mac == "" {
			again.network.Mac = old.Mac
		}
	} else {
		old := p.complete.Disks[at.index]
		again.disk.Slot, again.disk.BootOrder = old.Slot, old.BootOrder
	}
	if s, _ := p.with(again, &at); !proto.Equal(s, p.complete) {
		return false, taken
	}
	return true, nil
}

// pathFree refuses a disk that the VM has: two of them would destroy what is on it.
func (p *plugging) pathFree(device *deviceNote) error {
	for i, d := range p.complete.GetDisks() {
		if device.disk != nil && d.GetPath() == device.disk.GetPath() {
			return fault.InField(codes.AlreadyExists, fmt.Sprintf("disks[%d].path", i), "the VM has %s already, as disk %q", contract.ObjectName(d.GetPath()), d.GetName())
		}
	}
	return nil
}

// attach adds the device to what runs, if anything does, and returns what is to become
// of the specification.
func (p *plugging) attach(ctx context.Context, device *deviceNote) (delta, error) {
	s, at := p.with(device, nil)
	d := delta{Attached: device, Complete: new(deviceNote)}
	if at.network {
		d.Complete.network = s.Networks[at.index]
		d.Complete.network.Slot = device.network.Slot // the VMM's planner chooses one
		device.network.Name, device.network.Mac = d.Complete.network.Name, d.Complete.network.Mac
	} else {
		d.Complete.disk = s.Disks[at.index]
		d.Complete.disk.Slot = device.disk.Slot
		device.disk.Name = d.Complete.disk.Name
	}
	if others := findDevice(s, d.Complete.name()); len(others) > 1 {
		return d, fault.Invalid(at.field()+".name", "%q is the name of %s too", d.Complete.name(), others[0].field())
	}
	if p.live == nil {
		own := proto.CloneOf(p.m.Snapshot().GetSpec())
		d.apply(own, proto.CloneOf(p.complete))
		return d, p.platform.Validate(ctx, own, p.m.place.VMM)
	}
	if err := p.platform.Validate(ctx, s, p.m.place.VMM); err != nil {
		return d, err
	}
	return d, p.attachLive(ctx, s, at, d)
}

// attachLive has the shim do it. d's complete device gets its slot.
func (p *plugging) attachLive(ctx context.Context, s *specv1.VirtualMachineSpec, at deviceAt, d delta) error {
	req, err := p.request(ctx, s, at)
	if err != nil {
		return err
	}
	attachment, err := p.plugger.PlanAttach(req)
	if err != nil {
		return err
	}
	files, err := p.openTap(at, d.Complete)
	if err != nil {
		return err
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if at.network {
		d.Complete.network.Slot = proto.Uint32(attachment.Slot)
	} else {
		d.Complete.disk.Slot = proto.Uint32(attachment.Slot)
	}
	note, err := json.Marshal(d)
	if err != nil {
		return err
	}
	// Said before it is asked: of two VMs that get a disk at a time one sees the other.
	before, disks := p.m.usedDisks(), p.m.place.Disks(s)
	p.m.setDisks(disks)
	err = disksFree(p.m, p.vms.others(p.m), disks)
	if err == nil {
		err = p.m.keeper.Granting(p.live.lease, attachment.Files)
	}
	if err == nil {
		faultpoint.Reach("agent.attach.planned")
		err = p.live.shim.Attach(ctx, shim.Attach{Attachment: attachment, Note: note}, files)
	}
	if err != nil {
		p.m.setDisks(before)
	}
	return err
}

// request is what a device of this run is planned with.
func (p *plugging) request(ctx context.Context, s *specv1.VirtualMachineSpec, at deviceAt) (vmm.PlugRequest, error) {
	lease := p.live.lease
	info, err := p.live.vmm.Info(ctx)
	if err != nil {
		return vmm.PlugRequest{}, fault.Errorf(codes.FailedPrecondition, "VMM %s: %w", p.plugger.Name(), err)
	}
	r := vmm.PlugRequest{Manifest: &lease.Manifest, Network: at.network, Index: at.index}
	r.PlanRequest = vmm.PlanRequest{
		ID: p.m.Snapshot().GetId(), Spec: s, Hypervisor: lease.Manifest.Accelerator, Info: info,
		User: &plan.User{UID: lease.UID, GID: lease.UID}, StateDir: p.m.place.StateDir(),
		BlockDevices: place.BlockDevices(s), Seed: -1, HotplugFolders: lease.HotplugFolders,
	}
	for i := range s.GetNetworks() {
		tap := -1
		if at.network && i == at.index && s.GetNetworks()[i].GetTap() != nil {
			tap = 0 // it alone goes with the request
		}
		r.Taps = append(r.Taps, tap)
	}
	return r, nil
}

// openTap opens what an interface of the node's needs.
func (p *plugging) openTap(at deviceAt, device *deviceNote) ([]*os.File, error) {
	if device.network.GetTap() == nil {
		return nil, nil
	}
	f, err := p.own.At(p.m.name).OpenTap(device.network, p.live.lease, at.field())
	if err != nil {
		return nil, err
	}
	return []*os.File{f}, nil
}

// Detach takes a device away.
func (h *Hotplug) Detach(ctx context.Context, name, device string) (*nodev1.VirtualMachine, error) {
	p, done, err := h.plug(ctx, name, lifecycle.Detach)
	if err != nil {
		return nil, err
	}
	defer done()
	d := delta{Detached: device}
	switch found := findDevice(p.complete, device); {
	case len(found) == 0:
		return nil, fault.Errorf(codes.NotFound, "%s has no device %q: it has %s", contract.ThisVM(name), device, deviceNames(p.complete))
	case len(found) > 1:
		return nil, fault.Errorf(codes.FailedPrecondition, "%s has two devices %q, %s and %s: stop it, and name one of them otherwise",
			contract.ThisVM(name), device, found[0].field(), found[1].field())
	case p.live != nil:
		err = p.detachLive(ctx, found[0], d)
	}
	if err != nil {
		return nil, contract.Errorf("detaching %s from %s: %w", device, contract.ThisVM(name), err)
	}
	faultpoint.Reach("agent.detach.detached")
	if err := p.m.replug(d, p.complete); err != nil {
		return nil, err
	}
	return p.m.Snapshot(), nil
}

func (p *plugging) detachLive(ctx context.Context, at deviceAt, d delta) error {
	req, err := p.request(ctx, p.complete, at)
	if err != nil {
		return err
	}
	detachment, err := p.plugger.PlanDetach(req)
	if err != nil {
		return err
	}
	note, err := json.Marshal(d)
	if err != nil {
		return err
	}
	within := detachPatience
	if p.m.State() == lifecycle.Paused {
		within = detachPaused
	}
	faultpoint.Reach("agent.detach.planned")
	if err := p.live.shim.Detach(ctx, shim.Detach{Detachment: detachment, Within: within, Note: note}); err != nil {
		return err
	}
	p.m.setDisks(slices.DeleteFunc(slices.Clone(p.m.usedDisks()), func(w place.UsedDisk) bool { return w.Name == d.Detached }))
	return nil
}

// deviceNames lists those that can be detached.
func deviceNames(s *specv1.VirtualMachineSpec) string {
	var names []string
	for _, d := range s.GetDisks() {
		names = append(names, d.GetName())
	}
	for _, n := range s.GetNetworks() {
		names = append(names, n.GetName())
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}
