package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/memory"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
)

// RestoreOptions say what is restored, and as what.
type RestoreOptions struct {
	Directory         string // of the image
	Name              string // empty: the image's
	Lazy              bool   // map the image instead of reading it first
	Paused            bool   // leave the guest paused
	AllowChangedDisks bool   // restore although disks differ from those of the save
	NewIdentity       bool   // new id and MAC addresses, for a clone
	Once              bool   // the shim marks the image as used; an error after that is a *RunsError
	entered           bool   // by this restore: no record is on disk yet
}

// Image is what the agent reads of an image before it restores it.
type Image struct {
	manifest *memory.Manifest
	Spec     *specv1.VirtualMachineSpec // complete, as it ran
	ID       string
}

// readImage reads an image's manifest and sees that its files are there.
func readImage(dir string) (*Image, error) {
	if !filepath.IsAbs(dir) {
		return nil, fault.Invalid("directory", "%q is not an absolute path", dir)
	}
	opened, err := memory.Open(dir)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	return ImageOf(opened.Manifest(), filepath.Join(dir, memory.ManifestName))
}

// ParseImage is readImage of a manifest that somebody else has read.
func ParseImage(content []byte, source string) (*Image, error) {
	m, err := memory.ReadManifest(bytes.NewReader(content), source)
	if err != nil {
		return nil, err
	}
	return ImageOf(m, source)
}

// ImageOf takes from a manifest what the agent wants to know.
func ImageOf(m *memory.Manifest, source string) (i *Image, err error) {
	i = &Image{manifest: m}
	if i.Spec, err = spec.Parse(i.manifest.Specification, source); err != nil {
		return nil, fault.Errorf(codes.DataLoss, "%s: specification: %w", contract.ObjectName(source), err)
	}
	var extras imageExtras
	if err := json.Unmarshal(i.manifest.PlanExtras, &extras); err != nil {
		return nil, fault.Errorf(codes.DataLoss, "%s: planExtras: %w", contract.ObjectName(source), err)
	}
	if _, err := uuid.Parse(extras.ID); err != nil {
		return nil, fault.Errorf(codes.DataLoss, "%s: planExtras.id: %.80q is not a UUID", contract.ObjectName(source), extras.ID)
	}
	i.ID = extras.ID
	// What the guest sees is what it saw, whatever the defaults are by now.
	i.Spec.MachineType = i.manifest.MachineType
	i.Spec.Hypervisor = i.manifest.Accelerator
	i.Spec.Vmm = i.manifest.VMM.Name
	return i, nil
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

// Identify gives an image's VM the name and the identity that were asked for.
func (p *Platform) Identify(i *Image, o RestoreOptions, find vmmFinder) error {
	if o.Name != "" {
		i.Spec.Name = o.Name
	}
	if o.NewIdentity {
		i.ID = uuid.NewString()
		for _, n := range i.Spec.GetNetworks() {
			n.Mac = "" // made from the id
		}
	}
	// What the hypervisor can't do is reported when it is known that the image is one
	// for this node.
	return spec.ValidateNames(i.Spec, p.Names(i.Spec, find)).Err()
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

// UnfitError says that an image can't be restored at its VM's place: another
// VMM, hypervisor or CPU is needed.
type UnfitError struct{ Err error }

// Error returns the message of Err.
func (e *UnfitError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *UnfitError) Unwrap() error { return e.Err }

func unfit(format string, args ...any) error {
	return &UnfitError{fault.Errorf(codes.FailedPrecondition, format, args...)}
}

// LaunchImage checks an image and starts a VMM with it.
func (l *Launcher) LaunchImage(ctx context.Context, m *VM, i *Image, o RestoreOptions, progress func(shim.Progress)) error {
	begun := time.Now()
	err := l.launchImage(ctx, m, i, o, progress)
	l.stats.count(begun, 0, err)
	return err
}

func (l *Launcher) launchImage(ctx context.Context, m *VM, i *Image, o RestoreOptions, progress func(shim.Progress)) error {
	v, err := m.place.VMM(i.manifest.VMM.Name)
	if err != nil {
		return unfit("%s: the image was saved by %s: %w", o.Directory, i.manifest.VMM.Name, err)
	}
	if err := v.CheckImage(ctx, i.manifest); err != nil {
		return unfit("%s: %w", o.Directory, err)
	}
	if err := checkLazy(ctx, v, i, o); err != nil {
		return &UnfitError{err}
	}
	restore := &launch{
		Launcher: l, progress: progress, unrecorded: o.entered, once: o.Once,
		wanted: wanted{m: m, spec: i.Spec, paused: o.Paused, image: &vmm.Image{
			Directory: o.Directory, Manifest: i.manifest, Lazy: o.Lazy, AllowChangedDisks: o.AllowChangedDisks,
		}},
	}
	if err := restore.run(ctx, "restored from "+o.Directory); err != nil {
		return err
	}
	l.guests.SetGuestTime(m)
	return nil
}

func checkLazy(ctx context.Context, v vmm.VMM, i *Image, o RestoreOptions) error {
	if !o.Lazy {
		return nil
	}
	if i.manifest.Layout == memory.LayoutStream {
		return fault.Errorf(codes.FailedPrecondition, "%s: its memory is inside the VMM's own stream, as that of a VM which was restored lazily itself: restore it eagerly",
			contract.ObjectName(o.Directory))
	}
	info, err := v.Info(ctx)
	if err != nil {
		return fault.Errorf(codes.FailedPrecondition, "VMM %s: %w", v.Name(), err)
	}
	if !info.LazyRestore {
		return fault.Errorf(codes.FailedPrecondition, "%s %s at %s can't map an image read-only, which a lazy restore needs: restore eagerly%s, or use a newer %s",
			info.Name, info.Version, info.Binary, contract.Advice("without --lazy"), info.Name)
	}
	return nil
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

// guestTimePatience is how long a guest's agent has to come back to its senses
// after a restore.
const guestTimePatience = 30 * time.Second

// SetGuestTime puts the clock right of a guest that has been paused, in the background: many
// guests have no agent, and none is to wait for that.
func (g *Guests) SetGuestTime(m *VM) {
	l := m.running()
	if l == nil || m.State() != lifecycle.Running {
		return
	}
	monitor, err := l.connected()
	if err != nil {
		return
	}
	g.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(g.tasks.ctx, guestTimePatience)
		defer cancel()
		if err := monitor.SetGuestTime(ctx, time.Now()); err != nil {
			m.log.Debug("failed to set the guest's clock", "error", err)
		}
	})
}
