// Package vm manages the VMs of a node: it creates, starts, saves, restores, stops, adopts
// and deletes them, and keeps their records. It must not know how the API is served, what a
// pod is, or the agent's configuration: a place.Placement is where a VM lives. Start reading
// at Manager, and at launch for how a VM is started.
package vm

import (
	"context"
	"errors"
	"log/slog"
	"runtime"

	"github.com/google/uuid"
	"github.com/vmlet/vmlet/agent/events"
	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/faultpoint"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// Options are what a node's VMs are run with.
type Options struct {
	// Own is what VMs of the node itself are placed with.
	Own *place.Resources
	// Hypervisor of specifications that name none; empty: the first that works.
	Hypervisor string
	// BootID is the machine's since it was booted.
	BootID string
	Log    *slog.Logger
}

// Manager owns the node's VMs and the host resources that they use: it creates and deletes the
// node's own VMs, and starts and restores them; its parts do the rest with any VM. All may
// be called at the same time.
type Manager struct {
	*Registry
	*background
	own *place.Resources

	Platform *Platform
	Guests   *Guests
	Launcher *Launcher
	Power    *Power
	Hotplug  *Hotplug
	Saver    *Saver
	Renewer  *Renewer
	Adopter  *Adopter
}

// New makes the manager of a node's VMs. What it begins ends with ctx.
func New(ctx context.Context, o Options) *Manager {
	vms := &Registry{log: o.Log, hub: events.NewHub(history), followers: new(events.Followers), vms: make(map[string]*VM)}
	tasks := &background{ctx: ctx}
	platform := newPlatform(o)
	guests := &Guests{vms: vms, tasks: tasks, asked: semaphore.NewWeighted(guestsAsked)}
	watching := &supervisor{tasks: tasks, followers: vms.followers, guests: guests}
	return &Manager{
		Registry: vms, background: tasks, own: o.Own, Platform: platform, Guests: guests,
		Launcher: &Launcher{vms: vms, platform: platform, guests: guests, supervisor: watching, shims: o.Own.Shims, bootID: o.BootID},
		Power:    &Power{vms: vms, tasks: tasks, guests: guests},
		Hotplug:  &Hotplug{vms: vms, platform: platform, own: o.Own},
		Saver:    &Saver{vms: vms, tasks: tasks},
		Renewer:  &Renewer{vms: vms, platform: platform},
		Adopter:  &Adopter{sweeper: &sweeper{vms: vms, tasks: tasks, own: o.Own, log: o.Log}, supervisor: watching, bootID: o.BootID},
	}
}

// StartOptions say how a VM is started.
type StartOptions struct {
	Cold   bool // boot even if the VM is saved; its image is then no longer the VM's
	Paused bool // leave the guest paused
}

// Create keeps a specification. The same one again changes nothing.
func (a *Manager) Create(ctx context.Context, s *specv1.VirtualMachineSpec) (*nodev1.VirtualMachine, error) {
	if err := a.own.CheckOwn(); err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fault.Invalid("spec", "it is missing")
	}
	if err := a.Platform.Validate(ctx, s, a.own.Node.VMM); err != nil {
		return nil, err
	}
	m, done := a.enterOwn(NewRecord(s, uuid.NewString()))
	if done == nil {
		return sameSpec(m, s)
	}
	defer done()
	faultpoint.Reach("agent.create.entered")
	if err := m.persist(); err != nil {
		a.drop(m)
		return nil, contract.Errorf("keeping %s: %w", contract.ThisVM(m.name), err)
	}
	faultpoint.Reach("agent.create.kept")
	m.Publish(&nodev1.Event{Type: "state", Message: "created"})
	return m.Snapshot(), nil
}

// enterOwn enters a VM of the node itself.
func (a *Manager) enterOwn(vm *nodev1.VirtualMachine) (m *VM, done func()) {
	name := vm.GetSpec().GetName()
	return a.Enter(name, a.own.At(name), vm)
}

// Delete forgets a VM that does not run.
func (a *Manager) Delete(ctx context.Context, name string) error {
	m, done, err := a.take(ctx, name, lifecycle.Delete)
	if err != nil {
		return err
	}
	defer done()
	if err := a.own.At(name).Reclaim(ctx); err != nil {
		return contract.Errorf("deleting %s: %w", contract.ThisVM(name), err)
	}
	m.persisting.Lock() // nothing is to write into the folder any more
	defer m.persisting.Unlock()
	faultpoint.Reach("agent.delete.begun")
	if err := a.own.Store.Delete(name); err != nil {
		return contract.Errorf("deleting %s: %w", contract.ThisVM(name), err)
	}
	faultpoint.Reach("agent.delete.removed")
	m.Publish(&nodev1.Event{Type: "deleted"})
	a.drop(m)
	return nil
}

// Start boots a VM, or restores one that is saved.
func (a *Manager) Start(ctx context.Context, name string, o StartOptions, progress func(shim.Progress)) (*nodev1.VirtualMachine, error) {
	m, done, err := a.take(ctx, name, lifecycle.Start)
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, end := m.interruptible(ctx)
	defer end()
	vm := m.Snapshot()
	saved := vm.GetStatus().GetImage()
	if vm.GetStatus().GetState() == lifecycle.Saved && !o.Cold && saved != nil {
		return a.startSaved(ctx, m, o, progress)
	}
	message := ""
	if saved != nil {
		message = "booted afresh: the image in " + saved.GetPath() + " is no longer its"
	}
	boot := &launch{Launcher: a.Launcher, wanted: wanted{m: m, spec: vm.GetSpec(), paused: o.Paused}, progress: progress}
	if err := boot.run(ctx, message); err != nil {
		return nil, err
	}
	return m.Snapshot(), nil
}

// startSaved restores a saved VM from its image.
func (a *Manager) startSaved(ctx context.Context, m *VM, o StartOptions, progress func(shim.Progress)) (*nodev1.VirtualMachine, error) {
	ref := m.Snapshot().GetStatus().GetImage()
	advice := func(err error) error {
		return contract.Errorf("%s is saved to %s and can't be started from there: %w: put the image right, restore it from where it is now%s, or boot the VM afresh%s",
			contract.ThisVM(m.name), ref.GetPath(), err, contract.Advice("vmlet restore"), contract.Advice("vmlet start --cold"))
	}
	i, err := readImage(ref.GetPath())
	if err != nil {
		return nil, advice(err)
	}
	if i.manifest.ID != ref.GetImageId() {
		return nil, advice(fault.Errorf(codes.FailedPrecondition, "it has another image, %s instead of %s", i.manifest.ID, ref.GetImageId()))
	}
	i.Spec.Name = m.name
	err = a.Launcher.LaunchImage(ctx, m, i, RestoreOptions{Directory: ref.GetPath(), Paused: o.Paused}, progress)
	if err != nil {
		return nil, err
	}
	return m.Snapshot(), nil
}

// Restore makes a VM of an image and lets it go on.
func (a *Manager) Restore(ctx context.Context, o RestoreOptions, progress func(shim.Progress)) (*nodev1.VirtualMachine, error) {
	if err := a.own.CheckOwn(); err != nil {
		return nil, err
	}
	i, err := readImage(o.Directory)
	if err != nil {
		return nil, err
	}
	if err := a.Platform.Identify(i, o, a.Platform.node.VMM); err != nil {
		return nil, err
	}
	m, done := a.enterOwn(NewRecord(i.Spec, i.ID))
	if done == nil {
		return a.restoreThere(ctx, m, i, o, progress)
	}
	defer done()
	o.entered = true
	faultpoint.Reach("agent.restore.entered")
	vm, err := a.restoreAs(ctx, m, i, o, progress)
	if err != nil {
		err = errors.Join(err, a.forget(m))
	}
	return vm, err
}

// restoreThere restores a VM that the agent has already.
func (a *Manager) restoreThere(ctx context.Context, m *VM, i *Image, o RestoreOptions, progress func(shim.Progress)) (*nodev1.VirtualMachine, error) {
	if m.Snapshot().GetId() != i.ID {
		return nil, fault.Errorf(codes.AlreadyExists, "%s exists and is not the one in the image: restore under another name", contract.ThisVM(m.name))
	}
	_, done, err := m.begin(ctx, lifecycle.Restore)
	if err != nil {
		return nil, err
	}
	defer done()
	return a.restoreAs(ctx, m, i, o, progress)
}

// restoreAs is for a VM that is taken.
func (a *Manager) restoreAs(ctx context.Context, m *VM, i *Image, o RestoreOptions, progress func(shim.Progress)) (*nodev1.VirtualMachine, error) {
	ctx, end := m.interruptible(ctx)
	defer end()
	if err := a.Launcher.LaunchImage(ctx, m, i, o, progress); err != nil {
		return nil, err
	}
	return m.Snapshot(), nil
}

// forget takes back a VM that was only entered to be restored. Its name is
// free when its folder is gone: another's record is not to be deleted.
func (a *Manager) forget(m *VM) error {
	defer a.drop(m)
	m.leave()
	m.persisting.Lock()
	defer m.persisting.Unlock()
	return a.own.Store.Delete(m.name)
}

func sameSpec(m *VM, s *specv1.VirtualMachineSpec) (*nodev1.VirtualMachine, error) {
	if m.left() {
		return nil, fault.Errorf(codes.Aborted, "%s is just being deleted: try again", contract.ThisVM(m.name))
	}
	vm := m.Snapshot()
	if proto.Equal(vm.GetSpec(), s) {
		return vm, nil
	}
	return nil, fault.Errorf(codes.AlreadyExists, "%s exists, with another specification: delete it first, or choose another name", contract.ThisVM(m.name))
}

func newPlatform(o Options) *Platform {
	n := o.Own.Node
	standard, warning := n.Hypervisors.Default(o.Hypervisor)
	if warning != "" {
		o.Log.Warn("configuration: " + warning)
	}
	return &Platform{node: n, layers: n.Hypervisors.Layers(), arch: runtime.GOARCH, defaultHypervisor: standard}
}
