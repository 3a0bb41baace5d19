package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"syscall"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/host"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/plan"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
)

// OnNode is that of a VM on the node itself: the agent starts its shim, and
// gives it a user, a cgroup and a place for its RAM.
type OnNode struct {
	manager *Manager
	name    string
}

func (h OnNode) runDir() string   { return h.manager.store.RunDir(h.name) }
func (h OnNode) stateDir() string { return h.manager.store.StateDir(h.name) }

func (h OnNode) keep(vm *nodev1.VirtualMachine) error { return h.manager.store.Save(vm) }

func (h OnNode) dial(ctx context.Context) (Shim, error) { return h.manager.shims.Dial(ctx, h.runDir()) }

func (h OnNode) process() (ShimProcess, error) { return h.manager.shims.Process(h.runDir()) }

func (h OnNode) refuses(op lifecycle.Operation) error {
	if op == lifecycle.Start || op == lifecycle.Restore {
		return h.manager.podsOnly()
	}
	return nil
}

func (OnNode) hasImage(ref *nodev1.ImageReference) bool { return imageIs(ref) }

func (h OnNode) checkSave(o saveOptions) error { return h.manager.checkTarget(o.directory) }

func (h OnNode) vmm(name string) (vmm.VMM, error) { return h.manager.node.VMM(name) }
func (h OnNode) vmms() ([]string, error)          { return h.manager.node.VMMNames() }

func (OnNode) permits(hypervisor.Hypervisor) error { return nil }
func (OnNode) refusesSave(*choice) error           { return nil }

func (OnNode) shimPID(told int) int { return told }
func (OnNode) vmmPID(told int) int  { return told }

// giveBack takes back all of a lease, and at last the user id and the run folder that the
// lease is in. If something can't be taken back both stay, for the next try.
func (h OnNode) giveBack(ctx context.Context, l *Lease) error {
	err := h.takeBack(ctx, l)
	if l.out = err != nil; l.out {
		return err
	}
	h.untake(l)
	return errors.Join(removeRemains(h.runDir()), h.manager.store.RemoveRunDir(h.name))
}

// takeBack takes rights away also from processes that can't be ended. What these use stays:
// they would fill the folder again, and have the tap and the cgroup.
func (h OnNode) takeBack(ctx context.Context, l *Lease) error {
	own := h.manager.host
	errEnd := own.EndProcesses(ctx, l.searched(), l.UID)
	errs := []error{errEnd, own.RemoveTaps(l.RunID)}
	for _, device := range l.devices() {
		errs = append(errs, own.RevokeDevice(device, l.UID))
	}
	errs = append(errs, h.takeBackGranted(), own.RemoveMemory(l.Memory))
	if errEnd == nil {
		errs = append(errs, h.restoreTaps(), own.RemoveCgroup(l.Cgroup), removeVMMFolder(ctx, h.stateDir()))
	}
	return errors.Join(errs...)
}

// sweep goes by the VM's name alone where there is no lease.
func (h OnNode) sweep(ctx context.Context) error {
	l, err := readLease(h.runDir())
	if err == nil {
		ctx, cancel := l.ending(ctx)
		defer cancel()
		return h.giveBack(ctx, l)
	}
	_, errSweep := h.manager.host.Sweep(func(vm string) bool { return vm != h.name })
	return errors.Join(errSweep, h.takeBackGranted(), removeVMMFolder(ctx, h.stateDir()), h.manager.store.RemoveRunDir(h.name))
}

// reclaim takes back what could not be taken back at the end of the VM's last run. As long
// as that is so the VM is neither started nor deleted: a process of that run may write to
// its disks, and the lease is the only note of what is still out.
func (h OnNode) reclaim(ctx context.Context) error {
	l, err := readLease(h.runDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return h.sweep(ctx) // nobody can tell from it what is out
	}
	ctx, cancel := l.ending(ctx)
	defer cancel()
	if err = waitForShim(ctx, h); err == nil {
		err = h.giveBack(ctx, l)
	}
	switch {
	case err == nil:
	case h.manager.leased(h.name):
		return fault.Errorf(codes.FailedPrecondition, "what its last run had of the host can't be taken back: %w", err)
	default:
		h.manager.log.Error("taking back what the VM had of the host", "vm", h.name, "error", err)
	}
	return nil
}

func (h OnNode) untake(l *Lease) {
	if !l.out {
		h.manager.host.ReleaseUser(l.UID, h.name)
	}
}

func (h OnNode) take(c *choice, req *vmm.PlanRequest) (*Lease, error) {
	var err error
	if req.MemoryPath, err = h.memoryPath(c, req); err != nil {
		return nil, err
	}
	req.StateDir = h.stateDir()
	req.Taps, req.Seed = descriptors(c.spec)
	req.BlockDevices = blockDevices(c.spec)
	req.HotplugFolders = h.hotplugFolders()
	uid, err := h.manager.host.TakeUser(h.name)
	if err != nil {
		return nil, fault.Errorf(codes.ResourceExhausted, "%w", err)
	}
	req.User = &plan.User{UID: uid, GID: uid}
	return &Lease{RunID: runID(c.id, c.start), UID: uid, Cgroup: h.manager.host.PlanCgroup(h.name, c.spec.GetStopGracePeriod().AsDuration()), HotplugFolders: req.HotplugFolders}, nil
}

// hotplugFolders are those that are there now; without one of them a VM starts all the
// same, and can be given no disk from it.
func (h OnNode) hotplugFolders() []string {
	var there []string
	for _, folder := range h.manager.opts.HotplugFolders {
		if err := isDirectory(folder); err != nil {
			h.manager.log.Warn("no disk can be attached from there to a VM that is started now", "hotplugFolders", folder, "vm", h.name, "error", err)
			continue
		}
		there = append(there, folder)
	}
	return there
}

func isDirectory(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no folder", path)
	}
	return err
}

func (h OnNode) memoryPath(c *choice, req *vmm.PlanRequest) (string, error) {
	var pageSize uint64
	if huge := c.spec.GetMemory().GetHugePages(); huge != nil {
		var err error
		if pageSize, err = spec.ParseQuantity(huge.GetPageSize()); err != nil {
			return "", fault.Invalid("memory.hugePages.pageSize", "%v", err)
		}
	}
	path, err := h.manager.host.MemoryPath(h.name, c.id, pageSize)
	if err != nil {
		return "", fault.Errorf(codes.FailedPrecondition, "memory.hugePages: %w", err)
	}
	lazy := req.Image != nil && req.Image.Lazy
	if room, size := h.manager.host.MemoryRoom(), c.plannedMemory(); pageSize == 0 && !lazy && size > room {
		return "", fault.Invalid("memory.size", "%s is more than the %s of the tmpfs for guest RAM (ram.size of the agent's configuration)",
			spec.FormatQuantity(size), spec.ShortQuantity(room))
	}
	return path, nil
}

// prepare makes the folder that the shim wants at once, which a VM that is only
// now restored does not have yet.
func (h OnNode) prepare() error {
	if err := h.manager.store.MakeStateDir(h.name); err != nil {
		return fmt.Errorf("making the VM's folder: %w", err)
	}
	return nil
}

// acquire makes what the VMM needs, the slow things side by side.
func (h OnNode) acquire(ctx context.Context, l *launch) error {
	st, own, lease := h.manager.store, h.manager.host, l.choice.lease
	if err := h.reclaim(ctx); err != nil {
		return fmt.Errorf("vm %s: %w", h.name, err)
	}
	if err := st.MakeRunDir(h.name); err != nil {
		return fmt.Errorf("making the VM's run folder: %w", err)
	}
	faultpoint.Reach("agent.launch.folder-made")
	lease.Device = l.choice.device()
	if err := lease.write(h.runDir()); err != nil {
		return errors.Join(err, st.RemoveRunDir(h.name))
	}
	// All that follows is in the lease.
	l.undo.Push("take back what the VM has of the host", func(ctx context.Context) error {
		ctx, cancel := lease.ending(ctx)
		defer cancel()
		return h.giveBack(ctx, lease)
	})
	faultpoint.Reach("agent.launch.leased")
	if err := h.noteGranted(&l.choice); err != nil {
		return err
	}

	var group errgroup.Group
	var cgroup, shimUp bool
	cgroupTried := make(chan struct{})
	group.Go(func() error {
		defer close(cgroupTried)
		err := own.MakeCgroup(lease.Cgroup)
		cgroup = err == nil
		return err
	})
	within := func(start func(*syscall.SysProcAttr) (int, error)) error {
		if <-cgroupTried; !cgroup {
			_, err := start(new(syscall.SysProcAttr)) // who tried to make it says why
			return err
		}
		joined, err := own.StartInCgroup(lease.Cgroup, start)
		if err == nil && !joined && len(lease.Cgroup.Paths) > 0 {
			lease.Outside = true
			err = lease.write(h.runDir())
		}
		return err
	}
	for _, device := range lease.devices() {
		group.Go(func() error {
			_, err := own.GrantDevice(device, lease.UID)
			return err
		})
	}
	group.Go(func() error { return h.openTaps(l) })
	group.Go(func() (err error) {
		l.shim, l.pid, err = h.startShim(ctx, l, within)
		shimUp = err == nil
		faultpoint.Reach("agent.launch.shim-started")
		return err
	})
	err := group.Wait()
	if shimUp {
		l.undo.Push("end the shim", l.endShim)
	}
	return err
}

func (h OnNode) startShim(ctx context.Context, l *launch, within func(start func(*syscall.SysProcAttr) (int, error)) error) (Shim, int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, shimPatience, fmt.Errorf("the shim did not answer within %v", shimPatience))
	defer cancel()
	return h.manager.shims.Start(ctx, shim.StartOptions{
		Binary:   h.manager.opts.Shim,
		RunDir:   h.runDir(),
		StateDir: h.stateDir(),
		RunID:    l.choice.lease.RunID,
		Grace:    l.choice.spec.GetStopGracePeriod().AsDuration(),
		Verbose:  l.m.log.Enabled(ctx, slog.LevelDebug),
		Within:   within,
	})
}

// openTaps opens them in the order in which descriptors has numbered them.
func (h OnNode) openTaps(l *launch) error {
	for i, n := range l.choice.spec.GetNetworks() {
		tap := n.GetTap()
		if tap == nil {
			continue
		}
		if err := h.noteTap(tap.GetDevice()); err != nil {
			return err
		}
		f, name, err := h.manager.host.OpenTap(host.TapRequest{Device: tap.GetDevice(), Bridge: tap.GetBridge(), MAC: n.GetMac(), Owner: l.choice.lease.RunID})
		if err != nil {
			return fault.Errorf(codes.FailedPrecondition, "networks[%d].tap: %w", i, err)
		}
		l.m.log.Debug("tap", "network", n.GetName(), "device", name)
		l.files = append(l.files, f)
	}
	return nil
}

func (OnNode) request(c *choice) (shim.Launch, error) { return shim.Launch{Plan: c.plan}, nil }

// waitForShim returns when no shim runs in a home.
func waitForShim(ctx context.Context, h Placement) error {
	process, err := standing(h.process())
	if process == nil {
		return err
	}
	defer process.Close()
	return process.Wait(ctx)
}
