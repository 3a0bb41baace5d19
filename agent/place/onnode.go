package place

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/agent/store"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
)

// Resources are what VMs of the node itself are placed with.
type Resources struct {
	Store *store.Store
	Host  Host
	Shims Shims
	Node  *node.Node
	// StateDir and RunDir are the agent's own directories, in which no image may be.
	StateDir, RunDir string
	// Shim is the path of vmlet-shim.
	Shim string
	// HotplugFolders are directories from which a running VM may be given disks.
	HotplugFolders []string
	// PodsOnly refuses VMs of the node's own.
	PodsOnly bool
	Log      *slog.Logger
}

// At is the placement of a VM of the node's own.
func (r *Resources) At(name string) OnNode { return OnNode{r, name} }

// CheckOwn refuses VMs of the node's own where the agent has its place, its
// processes and its limits from a DaemonSet: they would end with its pod.
func (r *Resources) CheckOwn() error {
	if !r.PodsOnly {
		return nil
	}
	return fault.Errorf(codes.FailedPrecondition, "this agent runs the VMs of pods only: make a pod whose container runs vmlet-shim pod (or start an agent with pods.enabled: false)")
}

// Leased reports whether a VM has a lease: it runs, or what its last run had of the host
// could not be taken back.
func (r *Resources) Leased(name string) bool {
	_, err := os.Lstat(filepath.Join(r.Store.RunDir(name), LeaseName))
	return err == nil
}

// OnNode is the placement of a VM on the node itself: the agent starts its shim, and
// gives it a user, a cgroup and a place for its RAM.
type OnNode struct {
	*Resources
	name string
}

// RunDir is the VM's directory of what doesn't survive a reboot.
func (h OnNode) RunDir() string { return h.Store.RunDir(h.name) }

// StateDir is the VM's directory of what does.
func (h OnNode) StateDir() string { return h.Store.StateDir(h.name) }

// Keep writes the VM's record down.
func (h OnNode) Keep(vm *nodev1.VirtualMachine) error { return h.Store.Save(vm) }

// Dial connects to the VM's shim.
func (h OnNode) Dial(ctx context.Context) (Shim, error) { return h.Shims.Dial(ctx, h.RunDir()) }

// Process is the VM's shim.
func (h OnNode) Process() (ShimProcess, error) { return h.Shims.Process(h.RunDir()) }

// Refuses says why an operation is not possible.
func (h OnNode) Refuses(op lifecycle.Operation) error {
	if op == lifecycle.Start || op == lifecycle.Restore {
		return h.CheckOwn()
	}
	return nil
}

// HasImage opens an image that a save was about to make.
func (OnNode) HasImage(ref *nodev1.ImageReference) bool {
	i, err := memory.Open(ref.GetPath())
	if err != nil {
		return false
	}
	defer i.Close()
	return i.Manifest().ID == ref.GetImageId()
}

// CheckSave refuses folders that an image can't be in. The shim, which writes the image,
// finds out whether the folder is empty and unused.
func (h OnNode) CheckSave(o SaveOptions) error {
	dir := o.Directory
	if o.Attachment != "" {
		return fault.Invalid("attachment_pod_uid", "only a VM in a pod has volumes attached by another pod")
	}
	if !filepath.IsAbs(dir) {
		return fault.Invalid("directory", "%q is not an absolute path", dir)
	}
	clean := filepath.Clean(dir)
	if real, err := filepath.EvalSymlinks(filepath.Dir(clean)); err == nil {
		clean = filepath.Join(real, filepath.Base(clean))
	}
	for _, own := range []string{h.Resources.StateDir, h.Resources.RunDir} {
		if real, err := filepath.EvalSymlinks(own); err == nil {
			own = real
		}
		if clean == own || strings.HasPrefix(clean, own+"/") {
			return fault.Invalid("directory", "%s is in the agent's own folder %s: choose one outside of it", dir, own)
		}
	}
	return nil
}

// VMM finds one of the node's.
func (h OnNode) VMM(name string) (vmm.VMM, error) { return h.Node.VMM(name) }

// VMMs are the node's.
func (h OnNode) VMMs() ([]string, error) { return h.Node.VMMNames() }

// GiveBack takes back all of a lease, and at last the user id and the run folder that the
// lease is in. If something can't be taken back both stay, for the next try.
func (h OnNode) GiveBack(ctx context.Context, l *Lease) error {
	err := h.takeBack(ctx, l)
	if l.out = err != nil; l.out {
		return err
	}
	h.Untake(l)
	return errors.Join(removeRemains(h.RunDir()), h.Store.RemoveRunDir(h.name))
}

// takeBack takes rights away also from processes that can't be ended. What these use stays:
// they would fill the folder again, and have the tap and the cgroup.
func (h OnNode) takeBack(ctx context.Context, l *Lease) error {
	own := h.Host
	errEnd := own.EndProcesses(ctx, l.Searched(), l.UID)
	errs := []error{errEnd, own.RemoveTaps(l.RunID)}
	for _, device := range l.devices() {
		errs = append(errs, own.RevokeDevice(device, l.UID))
	}
	errs = append(errs, h.takeBackGranted(), own.RemoveMemory(l.Memory))
	if errEnd == nil {
		errs = append(errs, h.restoreTaps(), own.RemoveCgroup(l.Cgroup), removeVMMFolder(ctx, h.StateDir()))
	}
	return errors.Join(errs...)
}

// Sweep goes by the VM's name alone where there is no lease.
func (h OnNode) Sweep(ctx context.Context) error {
	l, err := ReadLease(h.RunDir())
	if err == nil {
		ctx, cancel := l.Ending(ctx)
		defer cancel()
		return h.GiveBack(ctx, l)
	}
	_, errSweep := h.Host.Sweep(func(vm string) bool { return vm != h.name })
	return errors.Join(errSweep, h.takeBackGranted(), removeVMMFolder(ctx, h.StateDir()), h.Store.RemoveRunDir(h.name))
}

// Reclaim takes back what could not be taken back at the end of the VM's last run. As long
// as that is so the VM is neither started nor deleted: a process of that run may write to
// its disks, and the lease is the only note of what is still out.
func (h OnNode) Reclaim(ctx context.Context) error {
	l, err := ReadLease(h.RunDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return h.Sweep(ctx) // nobody can tell from it what is out
	}
	ctx, cancel := l.Ending(ctx)
	defer cancel()
	if err = WaitForShim(ctx, h); err == nil {
		err = h.GiveBack(ctx, l)
	}
	switch {
	case err == nil:
	case h.Leased(h.name):
		return fault.Errorf(codes.FailedPrecondition, "what its last run had of the host can't be taken back: %w", err)
	default:
		h.Log.Error("failed to release the VM's host resources", "vm", h.name, "error", err)
	}
	return nil
}

// Untake gives the user id back, unless something still runs with it.
func (h OnNode) Untake(l *Lease) {
	if !l.out {
		h.Host.ReleaseUser(l.UID, h.name)
	}
}

// Take takes a user id.
func (h OnNode) Take(c *Choice) (*Lease, error) {
	uid, err := h.Host.TakeUser(h.name)
	if err != nil {
		return nil, fault.Errorf(codes.ResourceExhausted, "%w", err)
	}
	return &Lease{RunID: RunID(c.ID, c.Start), UID: uid, HotplugFolders: h.hotplugFolders()}, nil
}

// Describe fills in the run's user, the node's own directories and what the disks are.
func (h OnNode) Describe(l *Lease, req *vmm.PlanRequest) (err error) {
	req.StateDir = h.StateDir()
	req.Taps, req.Seed = Descriptors(req.Spec)
	req.BlockDevices = BlockDevices(req.Spec)
	req.HotplugFolders = l.HotplugFolders
	req.User = &plan.User{UID: l.UID, GID: l.UID}
	req.MemoryPath, err = h.memoryPath(req)
	return err
}

// hotplugFolders are those that are there now; without one of them a VM starts all the
// same, and can be given no disk from it.
func (h OnNode) hotplugFolders() []string {
	var there []string
	for _, folder := range h.HotplugFolders {
		if err := isDirectory(folder); err != nil {
			h.Log.Warn("no disk can be attached from there to a VM that is started now", "hotplugFolders", folder, "vm", h.name, "error", err)
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

func (h OnNode) memoryPath(req *vmm.PlanRequest) (string, error) {
	var pageSize uint64
	if huge := req.Spec.GetMemory().GetHugePages(); huge != nil {
		var err error
		if pageSize, err = spec.ParseQuantity(huge.GetPageSize()); err != nil {
			return "", fault.Invalid("memory.hugePages.pageSize", "%v", err)
		}
	}
	path, err := h.Host.MemoryPath(h.name, req.ID, pageSize)
	if err != nil {
		return "", fault.InField(codes.FailedPrecondition, "memory.hugePages", "%w", err)
	}
	lazy := req.Image != nil && req.Image.Lazy
	if room, size := h.Host.MemoryRoom(), PlannedMemory(req.Spec); pageSize == 0 && !lazy && size > room {
		return "", fault.Invalid("memory.size", "%s is more than the %s of the tmpfs for guest RAM (ram.size of the agent's configuration)",
			spec.FormatQuantity(size), spec.ShortQuantity(room))
	}
	return path, nil
}
