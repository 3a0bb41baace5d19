package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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

// ownHome is that of a VM on the node itself: the agent starts its shim, and
// gives it a user, a cgroup and a place for its RAM.
type ownHome struct {
	agent *agent
	name  string
}

func (h ownHome) runDir() string   { return h.agent.store.RunDir(h.name) }
func (h ownHome) stateDir() string { return h.agent.store.StateDir(h.name) }

func (h ownHome) keep(vm *nodev1.VirtualMachine) error { return h.agent.store.Save(vm) }

func (h ownHome) dial(ctx context.Context) (Shim, error) { return h.agent.shims.Dial(ctx, h.runDir()) }

func (h ownHome) process() (ShimProcess, error) { return h.agent.shims.Process(h.runDir()) }

func (h ownHome) refuses(op lifecycle.Operation) error {
	if op == lifecycle.Start || op == lifecycle.Restore {
		return h.agent.cfg.podsOnly()
	}
	return nil
}

func (ownHome) hasImage(ref *nodev1.ImageReference) bool { return imageIs(ref) }

func (h ownHome) checkSave(o saveOptions) error { return h.agent.checkTarget(o.directory) }

func (h ownHome) vmm(name string) (vmm.VMM, error) { return h.agent.node.VMM(name) }
func (h ownHome) vmms() ([]string, error)          { return h.agent.node.VMMNames() }

func (ownHome) permits(hypervisor.Hypervisor) error { return nil }
func (ownHome) refusesSave(*choice) error           { return nil }

func (ownHome) shimPID(told int) int { return told }
func (ownHome) vmmPID(told int) int  { return told }

// giveBack takes back all of a lease, and at last the user id and the run folder that the
// lease is in. If something can't be taken back both stay, for the next try.
func (h ownHome) giveBack(ctx context.Context, l *lease) error {
	err := h.takeBack(ctx, l)
	if l.out = err != nil; l.out {
		return err
	}
	h.untake(l)
	return errors.Join(removeRemains(h.runDir()), h.agent.store.RemoveRunDir(h.name))
}

// takeBack takes rights away also from processes that can't be ended. What these use stays:
// they would fill the folder again, and have the tap and the cgroup.
func (h ownHome) takeBack(ctx context.Context, l *lease) error {
	own := h.agent.host
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
func (h ownHome) sweep(ctx context.Context) error {
	l, err := readLease(h.runDir())
	if err == nil {
		ctx, cancel := l.ending(ctx)
		defer cancel()
		return h.giveBack(ctx, l)
	}
	_, errSweep := h.agent.host.Sweep(func(vm string) bool { return vm != h.name })
	return errors.Join(errSweep, h.takeBackGranted(), removeVMMFolder(ctx, h.stateDir()), h.agent.store.RemoveRunDir(h.name))
}

// reclaim takes back what could not be taken back at the end of the VM's last run. As long
// as that is so the VM is neither started nor deleted: a process of that run may write to
// its disks, and the lease is the only note of what is still out.
func (h ownHome) reclaim(ctx context.Context) error {
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
	case h.agent.leased(h.name):
		return fault.Errorf(codes.FailedPrecondition, "what its last run had of the host can't be taken back: %w", err)
	default:
		h.agent.log.Error("taking back what the VM had of the host", "vm", h.name, "error", err)
	}
	return nil
}

func (h ownHome) untake(l *lease) {
	if !l.out {
		h.agent.host.ReleaseUser(l.UID, h.name)
	}
}

func (h ownHome) take(c *choice, req *vmm.PlanRequest) (*lease, error) {
	var err error
	if req.MemoryPath, err = h.memoryPath(c, req); err != nil {
		return nil, err
	}
	req.StateDir = h.stateDir()
	req.Taps, req.Seed = descriptors(c.spec)
	req.BlockDevices = blockDevices(c.spec)
	req.HotplugFolders = h.hotplugFolders()
	uid, err := h.agent.host.TakeUser(h.name)
	if err != nil {
		return nil, fault.Errorf(codes.ResourceExhausted, "%w", err)
	}
	req.User = &plan.User{UID: uid, GID: uid}
	return &lease{RunID: runID(c.id, c.start), UID: uid, Cgroup: h.agent.host.PlanCgroup(h.name, c.spec.GetStopGracePeriod().AsDuration()), HotplugFolders: req.HotplugFolders}, nil
}

func (h ownHome) memoryPath(c *choice, req *vmm.PlanRequest) (string, error) {
	var pageSize uint64
	if huge := c.spec.GetMemory().GetHugePages(); huge != nil {
		var err error
		if pageSize, err = spec.ParseQuantity(huge.GetPageSize()); err != nil {
			return "", fault.Invalid("memory.hugePages.pageSize", "%v", err)
		}
	}
	path, err := h.agent.host.MemoryPath(h.name, c.id, pageSize)
	if err != nil {
		return "", fault.Errorf(codes.FailedPrecondition, "memory.hugePages: %w", err)
	}
	lazy := req.Image != nil && req.Image.Lazy
	if room, size := h.agent.host.MemoryRoom(), c.plannedMemory(); pageSize == 0 && !lazy && size > room {
		return "", fault.Invalid("memory.size", "%s is more than the %s of the tmpfs for guest RAM (ram.size of the agent's configuration)",
			spec.FormatQuantity(size), spec.ShortQuantity(room))
	}
	return path, nil
}

// prepare makes the folder that the shim wants at once, which a VM that is only
// now restored does not have yet.
func (h ownHome) prepare() error {
	if err := h.agent.store.MakeStateDir(h.name); err != nil {
		return fmt.Errorf("making the VM's folder: %w", err)
	}
	return nil
}

// acquire makes what the VMM needs, the slow things side by side.
func (h ownHome) acquire(ctx context.Context, l *launch) error {
	st, own, lease := h.agent.store, h.agent.host, l.choice.lease
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

func (h ownHome) startShim(ctx context.Context, l *launch, within func(start func(*syscall.SysProcAttr) (int, error)) error) (Shim, int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, shimPatience, fmt.Errorf("the shim did not answer within %v", shimPatience))
	defer cancel()
	return h.agent.shims.Start(ctx, shim.StartOptions{
		Binary:   h.agent.cfg.Shim,
		RunDir:   h.runDir(),
		StateDir: h.stateDir(),
		RunID:    l.choice.lease.RunID,
		Grace:    l.choice.spec.GetStopGracePeriod().AsDuration(),
		Verbose:  l.m.log.Enabled(ctx, slog.LevelDebug),
		Within:   within,
	})
}

// openTaps opens them in the order in which descriptors has numbered them.
func (h ownHome) openTaps(l *launch) error {
	for i, n := range l.choice.spec.GetNetworks() {
		tap := n.GetTap()
		if tap == nil {
			continue
		}
		if err := h.noteTap(tap.GetDevice()); err != nil {
			return err
		}
		f, name, err := h.agent.host.OpenTap(host.TapRequest{Device: tap.GetDevice(), Bridge: tap.GetBridge(), MAC: n.GetMac(), Owner: l.choice.lease.RunID})
		if err != nil {
			return fault.Errorf(codes.FailedPrecondition, "networks[%d].tap: %w", i, err)
		}
		l.m.log.Debug("tap", "network", n.GetName(), "device", name)
		l.files = append(l.files, f)
	}
	return nil
}

func (ownHome) request(c *choice) (shim.Launch, error) { return shim.Launch{Plan: c.plan}, nil }

// waitForShim returns when no shim runs in a home.
func waitForShim(ctx context.Context, h home) error {
	process, err := standing(h.process())
	if process == nil {
		return err
	}
	defer process.Close()
	return process.Wait(ctx)
}
