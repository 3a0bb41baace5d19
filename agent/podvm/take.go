package podvm

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/pods"
	"github.com/vmlet/vmlet/agent/vm"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/memory"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
)

// What a pod, or those who know of it, may take to answer.
const (
	// podPatience is how long the API server may take to have a pod, and the
	// kubelet to say in its status which container runs.
	podPatience = 30 * time.Second
	// describePatience is more than a shim takes to ask its VMMs.
	describePatience = 90 * time.Second
	// clockPatience is how old a restored VM may be whose guest's clock is put right when it is adopted.
	clockPatience = 10 * time.Minute
)

// isPath says whether a shim's words are an absolute path that a system call would take.
func isPath(said string) bool { return filepath.IsAbs(said) && len(said) < vm.MaxPath }

// take finds out whose shim it is, and starts its VM or takes up one that runs.
func (p *Runner) take(ctx context.Context, v pods.Volume, conn place.Shim, peer pods.Peer) (*vm.VM, error) {
	h, err := p.placement(ctx, v, conn, peer)
	if err != nil {
		return nil, err
	}
	if err := p.grant(ctx, h); err != nil {
		return nil, err
	}
	described, err := p.describe(ctx, h)
	if err != nil {
		return nil, err
	}
	if described.stack != "" {
		return nil, p.survey(ctx, v, h, described)
	}
	if w := conn.Welcome(); w.VMMPID != 0 {
		return p.adopt(ctx, h, w, described)
	}
	if described.attached {
		p.arrivals.looked(v) // it may take long
		if err := p.openImage(ctx, h, described); err != nil {
			return nil, err
		}
	}
	return p.launch(ctx, h, described)
}

// placement identifies the pod. The kernel says which container listens, and the API
// server whose that is; the shim is not asked.
func (p *Runner) placement(ctx context.Context, v pods.Volume, conn place.Shim, peer pods.Peer) (*placement, error) {
	if w := conn.Welcome(); w.Pod == nil || !isPath(w.Pod.RunDir) || w.Pod.StateDir != "" && !isPath(w.Pod.StateDir) {
		return nil, fault.Errorf(codes.FailedPrecondition, "what listens in the volume is no shim of a pod: its container runs vmlet-shim pod")
	}
	h := &placement{runner: p, pods: p.pods, dir: v.Dir, peer: peer, conn: conn}
	var err error
	if h.shimID, err = p.pods.Identify(peer.PID); err != nil {
		return nil, err
	}
	if h.place, err = p.pods.Place(h.shimID); err != nil {
		return nil, fmt.Errorf("whose shim it is: %w", err)
	}
	if h.place.Pod != v.UID {
		return nil, fault.Errorf(codes.PermissionDenied, "the shim in the volume of pod %s is a process of pod %s", v.UID, h.place.Pod)
	}
	if !strings.Contains(string(v.UID), "-") {
		return nil, fault.Errorf(codes.FailedPrecondition, "pod %s is a static pod, which the API server doesn't know by its UID: use a DaemonSet, or a pod that names its node", v.UID)
	}
	ctx, cancel := context.WithTimeout(ctx, podPatience)
	defer cancel()
	if h.pod, h.container, err = p.pods.Container(ctx, v.UID, h.place.Container); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotYet, err)
	}
	return h, nil
}

// grant gives the pod's user access to the hypervisors' devices that the kubelet
// has allocated to the container, and to the container's volumes that are block devices:
// the runtime leaves both with the owner that they have on the node.
func (p *Runner) grant(ctx context.Context, h *placement) error {
	var err error
	if h.allocated, err = p.pods.Allocated(ctx, h.pod.Namespace, h.pod.Name, h.container.Name); err != nil {
		return fmt.Errorf("%w: %w", errNotYet, err)
	}
	if h.peer.UID == 0 {
		return nil
	}
	for _, hv := range p.node.Hypervisors.All() {
		for _, r := range hv.DeviceRequests() {
			if !h.allocated[r.Resource] {
				continue
			}
			if err := p.pods.GrantDevice(h.shimID, r.Path, h.peer.UID); err != nil {
				return fmt.Errorf("giving the pod's user %d access to what %s stands for: %w", h.peer.UID, r.Resource, err)
			}
		}
	}
	for _, d := range h.container.VolumeDevices {
		if err := p.pods.GrantVolume(h.shimID, d.DevicePath, h.peer.UID); err != nil {
			return fmt.Errorf("giving the pod's user %d access to volume %s: %w", h.peer.UID, d.Name, err)
		}
	}
	return nil
}

// wanted is what a shim in a pod is there for.
type wanted struct {
	stack, stackError string                     // the pod is there for no VM: see survey
	spec              *specv1.VirtualMachineSpec // of the file that the container names; nil: it names an image
	paused            bool                       // the guest stays paused once its VMM is up
	// image and how to restore it; nil: it was restored by an earlier agent.
	image   *vm.Image
	restore vm.RestoreOptions
	// attached: the image is in a volume that another pod attaches.
	attached bool
}

// describe asks the shim what it is there for, and what the VMMs beside it can do.
func (p *Runner) describe(ctx context.Context, h *placement) (*wanted, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, describePatience, fmt.Errorf("the shim has not said within %v which VM it is for", describePatience))
	defer cancel()
	own := p.ownVMMs(ctx)
	d, err := h.conn.Describe(ctx, own.compare)
	if err != nil {
		return nil, err
	}
	defer d.Done()
	p.reading.Lock()
	defer p.reading.Unlock()
	if d.SameVMMs && own.compare.Files != nil {
		err = p.believe(h, own.said)
	} else {
		err = p.listen(h, d.VMMs)
	}
	if err == nil {
		err = p.drive(h, d.Drivers)
	}
	if err != nil {
		return nil, err
	}
	if d.Stack != "" {
		return &wanted{stack: fault.Clip(d.Stack, maxName), stackError: fault.Clip(d.StackError, fault.MaxMessage)}, nil
	}
	if d.Restore == nil {
		s, err := p.specification(h, d)
		return &wanted{spec: s, paused: d.Paused}, err
	}
	w := &wanted{restore: vm.RestoreOptions{
		Directory: d.Restore.Directory, Lazy: d.Restore.Lazy, AllowChangedDisks: d.Restore.AllowChangedDisks, NewIdentity: d.Restore.NewIdentity,
		Paused: d.Paused, Once: d.Restore.Once,
	}, attached: d.Restore.Attached}
	if w.attached || h.conn.Welcome().VMMPID != 0 {
		return w, nil
	}
	return w, w.parseImage(d.Restore.Manifest)
}

func (w *wanted) parseImage(manifest []byte) (err error) {
	if n := len(manifest); n > shim.MaxPodManifest {
		return fault.Errorf(codes.InvalidArgument, "%s: a manifest of %d bytes, a VM in a pod may have %d", fault.Clip(w.restore.Directory, vm.MaxPath), n, shim.MaxPodManifest)
	}
	w.image, err = vm.ParseImage(manifest, filepath.Join(w.restore.Directory, memory.ManifestName))
	return err
}

// launch boots the VM that a shim was started for, or restores it.
func (p *Runner) launch(ctx context.Context, h *placement, want *wanted) (*vm.VM, error) {
	if want.spec == nil {
		return p.restore(ctx, h, want)
	}
	if err := p.manager.Platform.Validate(ctx, want.spec, h.VMM); err != nil {
		return nil, err
	}
	id := string(h.pod.UID)
	s, err := p.connect(ctx, h, want.spec, id)
	if err != nil {
		return nil, err
	}
	defer h.guest.close()
	if err := p.passNUMA(h, s); err != nil {
		return nil, err
	}
	return p.start(h, s, id, func(m *vm.VM) error { return p.manager.Launcher.Launch(ctx, m, s, want.paused) })
}

// specification is the one that the container names, for a guest named as its pod
// unless it has a name.
func (p *Runner) specification(h *placement, d *shim.Described) (*specv1.VirtualMachineSpec, error) {
	// The name begins each error, and leaves room for what follows, in the log, too.
	name := fault.Clip(d.SpecificationName, fault.MaxLogged/2)
	if n := len(d.Specification); n > shim.MaxPodSpecification {
		return nil, fault.Errorf(codes.InvalidArgument, "%s: %d bytes, a VM in a pod may have a specification of %d", name, n, shim.MaxPodSpecification)
	}
	s, err := spec.Parse(d.Specification, name)
	if err == nil && s.Name == "" {
		s.Name = nameFor(h.pod.Name)
	}
	return s, err
}

// nameFor makes a guest's name, a DNS label, of a pod's, which may be longer and
// have dots.
func nameFor(pod string) string {
	const longest = 63 // RFC 1123
	out := make([]byte, 0, longest)
	for _, c := range []byte(pod[:min(len(pod), longest)]) {
		if c == '.' {
			c = '-'
		}
		out = append(out, c)
	}
	for len(out) > 0 && out[len(out)-1] == '-' {
		out = out[:len(out)-1]
	}
	return string(out)
}

// restore lets the VM of an image in one of the pod's volumes go on.
func (p *Runner) restore(ctx context.Context, h *placement, want *wanted) (*vm.VM, error) {
	i := want.image
	if err := p.manager.Platform.Identify(i, want.restore, h.VMM); err != nil {
		return nil, err
	}
	s, err := p.connect(ctx, h, i.Spec, i.ID)
	if err != nil {
		return nil, err
	}
	defer h.guest.close()
	i.Spec = s
	return p.start(h, i.Spec, i.ID, func(m *vm.VM) error {
		return p.manager.Launcher.LaunchImage(ctx, m, i, want.restore, nil)
	})
}

// start enters the VM and has it launched.
func (p *Runner) start(h *placement, s *specv1.VirtualMachineSpec, id string, launch func(*vm.VM) error) (*vm.VM, error) {
	if err := h.launchable(); err != nil {
		return nil, err
	}
	launched, err := p.promises.launch(h.pod.UID)
	if err != nil {
		return nil, err
	}
	defer launched()
	m, done, err := p.enter(h, s, id)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := launch(m); err != nil {
		return nil, err
	}
	p.warn(h, m)
	return m, nil
}

// enter lists the VM, in the place of an earlier run of the same pod, or of a pod of the same name
// that is gone.
func (p *Runner) enter(h *placement, s *specv1.VirtualMachineSpec, id string) (*vm.VM, func(), error) {
	vm := vm.NewRecord(s, id)
	vm.Status.Pod = h.reference()
	if why := h.guest.limited; why != nil {
		vm.Status.NetworkLimited, vm.Status.NetworkLimitedFaults = why.Error(), fault.Parts(why)
	}
	vm.Status.CreatedAt = timestamppb.New(h.pod.CreationTimestamp.Time)
	for {
		m, done := p.manager.Enter(h.name(), h, vm)
		if done != nil {
			return m, done, nil
		}
		if err := p.replace(h, m); err != nil {
			return nil, nil, err
		}
	}
}

// replace drops an earlier VM of a pod's name. One that may run stays, and this one waits, unless it
// is the same run after a lost connection: nobody would tell of the end of what is not
// listed, and the API server may have forgotten its pod long before.
func (p *Runner) replace(h *placement, m *vm.VM) error {
	former, is := m.Placement().(*placement)
	if is && former.shimID == h.shimID {
		p.manager.Dismiss(m)
		return nil
	}
	if err := p.manager.DismissEnded(m); err != nil {
		return fmt.Errorf("%w: an earlier VM of this name, of pod %s, has not ended: %w", errNotYet, m.Snapshot().GetStatus().GetPod().GetUid(), err)
	}
	return nil
}

// kept returns the lease that the shim has kept (placement.kept), and the image that a save of the run would make.
func (p *Runner) kept(h *placement, w shim.Welcome) (*place.Lease, *vm.Image, error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	l, err := h.kept(w)
	if err != nil {
		return nil, nil, err
	}
	i, err := vm.ImageOf(&l.Manifest, "what the shim keeps of the launch")
	return l, i, err
}

// adopt takes up a VM that an earlier agent has launched.
func (p *Runner) adopt(ctx context.Context, h *placement, w shim.Welcome, want *wanted) (*vm.VM, error) {
	l, i, err := p.kept(h, w)
	if err != nil {
		return nil, err
	}
	s := i.Spec
	if want.spec != nil {
		s = want.spec
		if err := p.manager.Platform.Validate(ctx, s, h.VMM); err != nil {
			return nil, err
		}
	}
	// What is kept is the pod's word, and is shown to others.
	if err := spec.ValidateNames(i.Spec, p.manager.Platform.Names(i.Spec, h.VMM)).Err(); err != nil {
		return nil, fmt.Errorf("what the shim keeps of the launch: %w", err)
	}
	h.guest.limited = p.limitation(ctx, i.Spec)
	m, done, err := p.enter(h, s, i.ID)
	if err != nil {
		return nil, err
	}
	defer done()
	p.manager.Adopter.TakeUp(ctx, m, l, h.conn)
	// The agent before may have been lost between the guest's going on and its clock's being set.
	if want.spec == nil && time.Since(l.Start).Abs() < clockPatience {
		p.manager.Guests.SetGuestTime(m)
	}
	return m, nil
}

// warn says so in the record if a container's memory limit is less than what the
// VM may come to.
func (p *Runner) warn(h *placement, m *vm.VM) {
	limit, has := h.container.Resources.Limits[corev1.ResourceMemory]
	status := m.Snapshot().GetStatus()
	need, known := p.node.PodLimit(status.GetEffectiveSpec(), status.GetHypervisor(), status.GetVmm().GetName())
	if !has || !known || need <= uint64(limit.Value()) {
		return
	}
	why := contract.Errorf("the container's memory limit, %s, is less than the %s that the VM may need: the kernel kills it then%s",
		limit.String(), spec.FormatQuantity(need), contract.Advice("vmlet overhead says what for"))
	m.Log().Warn(why.Error())
	_ = m.Change(func(vm *nodev1.VirtualMachine) { // no other state, which alone may be refused
		if vm.Status.State == status.GetState() {
			vm.Status.Message, vm.Status.Faults = why.Error(), fault.Parts(why)
		}
	})
}
