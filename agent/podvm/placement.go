package podvm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/host"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/pods"
	"github.com/vmlet/vmlet/agent/vm"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/memory"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
)

// graceMargin is what is left of a pod's grace period for the shim itself, after
// the guest's: to kill the VMM, and to remove the RAM file.
const graceMargin = 2 * time.Second

// placement is that of a VM in a pod. User, cgroup and devices are the container's,
// and so are all paths but dir: the agent opens none of them.
type placement struct {
	runner *Runner
	// dir is the pod's volume, as this node has it mounted.
	dir       string
	pod       *corev1.Pod
	container *corev1.Container
	place     pods.Place
	peer      pods.Peer
	shimID    shim.ShimProcess
	conn      place.Shim
	pods      podSource
	// allocated are the resources that the container was given.
	allocated map[string]bool
	// told are the VMMs of the pod's image, by name, and broken why one can't be used.
	told   map[string]vmm.VMM
	broken map[string]string
	// drivers are those of told that a driver of the image speaks for.
	drivers []string
	shared  []*sharedVMM // keeps the VMMs of told in the cache, see sayings
	// guest is what was made of the pod's network for a guest that is launched.
	guest guestNetworks
}

// name is that of the VM in the agent's API.
func (h *placement) name() string { return h.pod.Namespace + "/" + h.pod.Name }

func (h *placement) reference() *nodev1.PodReference {
	return &nodev1.PodReference{Namespace: h.pod.Namespace, Name: h.pod.Name, Uid: string(h.pod.UID), Container: h.container.Name}
}

// RunDir and StateDir are the pod's volume.
func (h *placement) RunDir() string   { return h.dir }
func (h *placement) StateDir() string { return h.dir }

func (h *placement) Process() (place.ShimProcess, error) { return place.ProcessOf(h.shimID) }

func (h *placement) Refuses(op lifecycle.Operation) error {
	switch op {
	case lifecycle.Start, lifecycle.Restore, lifecycle.Delete:
		return fault.Errorf(codes.FailedPrecondition, "%s is its pod's: kubectl delete pod -n %s %s ends it, and a new pod starts or restores one",
			contract.ThisVM(h.name()), h.pod.Namespace, h.pod.Name)
	case lifecycle.Attach, lifecycle.Detach:
		return fault.Errorf(codes.FailedPrecondition, "%s is its pod's, and keeps the devices that the pod was started with: delete the pod and start another", contract.ThisVM(h.name()))
	}
	return nil
}

// CheckSave refuses a save that would be lost with the pod, or that the kubelet
// would follow by a boot of the same guest with the same disks.
func (h *placement) CheckSave(o place.SaveOptions) error {
	if err := h.checkFolder(o); err != nil {
		return err
	}
	if why := pods.StartsAgain(h.pod, h.container); why != "" && !o.KeepRunning {
		return fault.Errorf(codes.FailedPrecondition, "%s: %s, so that the kubelet would boot the guest again after the save: use a pod with restartPolicy Never, or keep the VM running%s",
			contract.ThisVM(h.name()), why, contract.Advice("--keep-running"))
	}
	return nil
}

// checkFolder refuses what is no folder that an image may be made in.
func (h *placement) checkFolder(o place.SaveOptions) error {
	if o.Attachment != "" {
		if !isName(o.Directory) {
			return fault.Invalid("directory", "%.300q is not the name of a folder, of at most %d bytes and without a slash, to be made in the volume that is attached", o.Directory, maxName)
		}
		return nil
	}
	if !isPath(o.Directory) {
		return fault.Invalid("directory", "%.300q is not an absolute path, as the pod's container has it", o.Directory)
	}
	inside := filepath.Clean(h.conn.Welcome().Pod.RunDir)
	if clean := filepath.Clean(o.Directory); clean == inside || strings.HasPrefix(clean, inside+"/") {
		return fault.Invalid("directory", "%s is in the pod's volume %s, which is gone with the pod: choose a folder of a volume that stays", o.Directory, contract.VolumeName)
	}
	return nil
}

// VMM is one of the pod's image.
func (h *placement) VMM(name string) (vmm.VMM, error) {
	if v := h.told[name]; v != nil {
		return v, nil
	}
	if why := h.broken[name]; why != "" {
		return nil, fault.Errorf(codes.FailedPrecondition, "VMM %s in the pod's image: %s", name, why)
	}
	return nil, fault.Invalid("vmm", "%q is not in the pod's image, or this agent doesn't drive it", name)
}

// VMMs are those of the pod's image, in the node's order.
func (h *placement) VMMs() ([]string, error) {
	names, err := h.runner.node.VMMNames()
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return h.told[name] == nil && h.broken[name] == "" })
	for _, name := range h.drivers {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fault.Invalid("vmm", "what this agent drives is not in the pod's image")
	}
	return names, nil
}

// Permits wants the hypervisor's device to be allocated.
func (h *placement) Permits(hv hypervisor.Hypervisor) error {
	for _, r := range hv.DeviceRequests() {
		if !r.Optional && !h.allocated[r.Resource] {
			return fault.Errorf(codes.FailedPrecondition, "%s needs %s, which the container was not given: add it to resources.limits", hv.Name(), r.Resource)
		}
	}
	return nil
}

func (h *placement) ShimPID(int) int     { return h.peer.PID }
func (h *placement) VMMPID(told int) int { return pods.ChildPID("/proc", h.peer.PID, told) }

// Take takes nothing: the container has it all.
func (h *placement) Take(*place.Choice) (*place.Lease, error) { return h.lease(), nil }

// Describe fills in the container's paths, and refuses what a container can't have.
func (h *placement) Describe(_ *place.Lease, req *vmm.PlanRequest) error {
	inside := h.conn.Welcome().Pod
	req.MemoryPath, req.StateDir = filepath.Join(inside.RunDir, shim.RAMName), cmp.Or(inside.StateDir, inside.RunDir)
	req.Taps, req.Seed = h.guest.number(req.Spec)
	req.VhostNet = h.guest.vhost
	// By their names alone: nothing that the pod names is looked at.
	req.BlockDevices = place.DiskPaths(req.Spec, func(path string) bool {
		return filepath.Dir(filepath.Clean(path)) == contract.DevicesFolder
	})
	huge := req.Spec.GetMemory().GetHugePages() != nil
	if huge {
		req.MemoryPath = filepath.Join(contract.HugePagesFolder, shim.RAMName)
	}
	for i, n := range req.Spec.GetNetworks() {
		if n.GetTap() != nil {
			return fault.Invalid(fmt.Sprintf("networks[%d].tap", i), "a VM in a pod has no taps of the node: use pod, which is the pod's network")
		}
	}
	if huge {
		return nil // the shim sets the pages aside, or says that there are too few
	}
	lazy := req.Image != nil && req.Image.Lazy
	return h.checkRoom(place.PlannedMemory(req.Spec), lazy)
}

// Disks are those on the container's volumes that are block devices. Files have the same inode in all containers,
// so that the kernel's locks on them do: the agent looks at none of those that a pod names.
func (h *placement) Disks(s *specv1.VirtualMachineSpec) []place.UsedDisk {
	return place.UsedDisks(s, func(path string) (place.FileID, error) {
		if !slices.ContainsFunc(h.container.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.DevicePath == path }) {
			return place.FileID{}, contract.Errorf("%s is no volume that is a block device", contract.ObjectName(path))
		}
		return h.pods.Volume(h.shimID, path)
	})
}

// lease is what a run has of the node: nothing that it could give back.
func (h *placement) lease() *place.Lease {
	version := 1
	if _, unified := h.place.Cgroups[""]; unified && len(h.place.Cgroups) == 1 {
		version = 2
	}
	return &place.Lease{
		RunID: h.conn.Welcome().Pod.RunID, UID: h.peer.UID,
		Cgroup: host.Cgroup{Version: version, Paths: h.place.Cgroups},
	}
}

// Acquire has it all: the container was made by others.
func (h *placement) Acquire(context.Context, *place.Choice) (*place.Acquired, error) {
	return &place.Acquired{Shim: h.conn, PID: h.peer.PID, Files: h.guest.files, Undo: h.fail}, nil
}

// fail ends the VMM of a launch that failed, and tells the pod's owner why.
func (h *placement) fail(ctx context.Context, why error) error {
	if h.runner.manager.Context().Err() != nil {
		return nil // the next agent takes it up: nobody would start it again
	}
	ctx, cancel := context.WithTimeout(ctx, place.EndPatience)
	defer cancel()
	_, _ = h.conn.Fail(ctx, lastWords(why)) // refused if none was started
	return nil
}

// Request has the shim keep what an agent that comes later must know of the run.
func (h *placement) Request(c *place.Choice) (shim.Launch, error) {
	kept, err := json.Marshal(c.Lease)
	if err != nil {
		return shim.Launch{}, err
	}
	if len(kept) > shim.MaxPodKeep {
		return shim.Launch{}, fault.Errorf(codes.InvalidArgument, "its specification, with what it leaves to vmlet and as JSON, is too long for a VM in a pod: the shim would have to keep %d bytes and keeps %d: leave out some, of cloudInit say", len(kept), shim.MaxPodKeep)
	}
	leases, err := h.guest.leases(c.Spec)
	if err != nil {
		return shim.Launch{}, err
	}
	grace := h.grace(c.Spec)
	return shim.Launch{Plan: c.Plan, Keep: kept, Grace: &grace, Leases: leases}, nil
}

// grace is how long the guest has once the kubelet has asked the shim to end: what the
// specification says, also none, and less only where the kubelet would end the shim before.
func (h *placement) grace(s *specv1.VirtualMachineSpec) time.Duration {
	grace := s.GetStopGracePeriod().AsDuration()
	if own := h.pod.Spec.TerminationGracePeriodSeconds; grace > 0 && own != nil && *own < int64((grace+graceMargin)/time.Second) {
		grace = max(min(grace, time.Duration(*own)*time.Second-graceMargin), time.Second)
	}
	return grace
}

// RefusesSave says why a run can't be saved, though its VMM could save the VM.
func (h *placement) RefusesSave(c *place.Choice) error { return h.refusesLazy(c) }

// kept is the lease of a run that an earlier agent has launched. It is the pod's
// word: only what concerns the pod alone is taken from it.
func (h *placement) kept(w shim.Welcome) (*place.Lease, error) {
	var said place.Lease
	if n := separators(w.Keep); n > maxKeepValues {
		return nil, fmt.Errorf("what the shim keeps of the launch: %d values, at most %d are read", n, maxKeepValues)
	}
	if err := json.Unmarshal(w.Keep, &said); err != nil {
		return nil, fmt.Errorf("what the shim keeps of the launch: %w", err)
	}
	if err := boundManifest(&said.Manifest); err != nil {
		return nil, fmt.Errorf("what the shim keeps of the launch: %w", err)
	}
	l := h.lease()
	l.Start, l.VMM, l.Manifest = said.Start, said.VMM, said.Manifest
	l.Unsaveable, l.UnsaveableParts = fault.Clip(said.Unsaveable, fault.MaxMessage), contract.BoundFaults(said.UnsaveableParts)
	if room, err := h.room(); err == nil { // else it is not waited for
		l.MemorySize = min(said.MemorySize, room)
	}
	return l, nil
}

const (
	// maxKeepValues bounds the values in what a shim keeps: each may take more
	// memory than text. A text may have as many commas.
	maxKeepValues = 32 << 10
	// maxParts bounds the lists of a manifest that is kept.
	maxParts = 1 << 10
)

// boundManifest refuses what no agent has had kept, and would take memory for as long as
// the VM runs.
func boundManifest(m *memory.Manifest) error {
	switch {
	case len(m.VMM.Version) > vm.MaxVersion:
		return fmt.Errorf("the VMM's version has %d bytes", len(m.VMM.Version))
	case len(m.Regions) > maxParts, len(m.CPU.Features) > maxParts, len(m.VMM.Extra) > maxParts:
		return fmt.Errorf("a list of the manifest has more than %d elements", maxParts)
	}
	m.Disks, m.Chunks, m.Files = nil, nil, nil // a save fills them in
	return nil
}

// Dial connects to the shim that lives there, and to no other.
func (h *placement) Dial(ctx context.Context) (place.Shim, error) {
	conn, peer, err := h.pods.Dial(ctx, h.dir)
	if err == nil && peer != h.peer {
		err = errors.Join(errors.New("another process listens in the pod's volume"), conn.Close())
	}
	if err != nil {
		return nil, err
	}
	return conn, nil
}
