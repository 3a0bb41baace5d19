package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/vmlet/vmlet/agent/kube"
	"github.com/vmlet/vmlet/agent/pods"
	"github.com/vmlet/vmlet/hypervisor/overhead"
	"github.com/vmlet/vmlet/internal/inotify"
	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/shim"
	"github.com/vmlet/vmlet/vmm/spec"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// errNotYet is wrapped by what keeps a pod's VM from being started for a while:
// the kubelet restarts, the API server has not said yet whose pod it is.
var errNotYet = errors.New("not yet")

// How long until a pod's VM is tried again, at first and at most.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// podNode is what an agent learns of pods, and does to them.
type podNode interface {
	// Dial connects to the shim in a volume; the peer is who listens there.
	Dial(ctx context.Context, dir string) (Shim, pods.Peer, error)
	Identify(pid int) (shim.ShimProcess, error)
	// Place is where that very process is.
	Place(p shim.ShimProcess) (pods.Place, error)
	Container(ctx context.Context, uid types.UID, id string) (*corev1.Pod, *corev1.Container, error)
	Allocated(ctx context.Context, namespace, pod, container string) (map[string]bool, error)
	// GrantDevice gives a user access to a device in that very process's container.
	GrantDevice(p shim.ShimProcess, path string, uid uint32) error
	// Gone waits until there is no such pod.
	Gone(ctx context.Context, uid types.UID) error
}

// podVMs runs the VMs of this node's pods.
type podVMs struct {
	agent *agent
	node  podNode
}

// runPods runs the pods' VMs until ctx ends; they go on after that.
func (a *agent) runPods(ctx context.Context, client *kube.Client) {
	known := pods.New(a.log)
	a.watches.Go(func() { known.Run(ctx, client.Core(), client.Node()) })
	p := &podVMs{agent: a, node: systemPods{kubeletDir: a.cfg.DevicePlugins.KubeletDir, pods: known}}
	if err := pods.Each(ctx, a.cfg.DevicePlugins.KubeletDir, a.log, p.serve); err != nil {
		a.log.Error("VMs of pods are not found any more", "error", err)
	}
}

// serve follows a pod's volume: each run of the container announces itself anew.
func (p *podVMs) serve(ctx context.Context, v pods.Volume) {
	log := p.agent.log.With("pod", v.UID)
	socket := []inotify.Interest{{Path: filepath.Join(v.Dir, shim.SocketName)}}
	var follower inotify.Follower
	defer follower.Close()
	defer p.agent.watches.Go(func() { p.forget(v.UID) })
	for ctx.Err() == nil {
		if err := follower.Follow(socket); err != nil {
			log.Warn("the pod's volume can't be watched", "folder", v.Dir, "error", err)
		}
		conn, peer, err := p.node.Dial(ctx, v.Dir)
		if err == nil {
			p.attend(ctx, v, conn, peer)
			continue
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED) {
			log.Warn("the shim of a pod's VM", "error", err)
		}
		select {
		case <-follower.Changes():
		case <-ctx.Done():
		}
	}
}

// attend is one run of a pod's container, from its announcement to its end.
func (p *podVMs) attend(ctx context.Context, v pods.Volume, conn Shim, peer pods.Peer) {
	log := p.agent.log.With("pod", v.UID)
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		m, err := p.take(ctx, v, conn, peer)
		if err == nil {
			p.awaitEnd(ctx, m)
			return
		}
		if !errors.Is(err, errNotYet) {
			log.Error("the pod's VM is not run", "error", err)
			p.turnAway(ctx, conn, err)
			return
		}
		log.Warn("the pod's VM is not run yet", "error", err, "again in", wait)
		timer := time.NewTimer(wait)
		select {
		case _, open := <-conn.Events():
			if open {
				continue
			}
		case <-timer.C:
			continue
		case <-ctx.Done():
		}
		timer.Stop()
		conn.Close()
		return
	}
}

// turnAway ends a shim, which tells the pod's owner why, and waits until it has gone.
func (p *podVMs) turnAway(ctx context.Context, conn Shim, why error) {
	ctx, cancel := context.WithTimeout(ctx, endPatience)
	defer cancel()
	_ = conn.Release(ctx, why.Error()) // it may be gone already
	for {
		select {
		case _, open := <-conn.Events():
			if open {
				continue
			}
		case <-ctx.Done():
		}
		conn.Close()
		return
	}
}

// awaitEnd returns when a VM has ended, or the agent does. A connection that is
// lost and found again is a new live.
func (p *podVMs) awaitEnd(ctx context.Context, m *machine) {
	for l := m.running(); l != nil; l = m.running() {
		select {
		case <-l.over:
		case <-ctx.Done():
			return
		}
	}
}

// forget drops the VM of a pod when that is gone: one that has ended is listed for
// as long as its pod is.
func (p *podVMs) forget(uid types.UID) {
	if p.node.Gone(p.agent.ctx, uid) != nil {
		return // the agent ends
	}
	for _, m := range p.agent.all() {
		if h, is := m.home.(*podHome); is && h.pod.UID == uid && m.running() == nil {
			p.agent.drop(m)
			m.publish(&vmletv1.Event{Type: "deleted", Message: "its pod is gone"})
		}
	}
}

// take finds out whose shim it is, and starts its VM or takes up one that runs.
func (p *podVMs) take(ctx context.Context, v pods.Volume, conn Shim, peer pods.Peer) (*machine, error) {
	h, err := p.home(ctx, v, conn, peer)
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
	if w := conn.Welcome(); w.VMMPID != 0 {
		return p.adopt(ctx, h, w, described)
	}
	return p.launch(ctx, h, described)
}

// home identifies the pod. The kernel says which container listens, and the API
// server whose that is; the shim is not asked.
func (p *podVMs) home(ctx context.Context, v pods.Volume, conn Shim, peer pods.Peer) (*podHome, error) {
	if w := conn.Welcome(); w.Pod == nil || !filepath.IsAbs(w.Pod.RunDir) {
		return nil, failf(codes.FailedPrecondition, "what listens in the volume is no shim of a pod: its container runs vmlet-shim pod")
	}
	h := &podHome{agent: p.agent, dir: v.Dir, peer: peer, conn: conn}
	var err error
	if h.shimID, err = p.node.Identify(peer.PID); err != nil {
		return nil, err
	}
	if h.place, err = p.node.Place(h.shimID); err != nil {
		return nil, fmt.Errorf("whose shim it is: %w", err)
	}
	if h.place.Pod != v.UID {
		return nil, failf(codes.PermissionDenied, "the shim in the volume of pod %s is a process of pod %s", v.UID, h.place.Pod)
	}
	if h.pod, h.container, err = p.node.Container(ctx, v.UID, h.place.Container); err != nil {
		return nil, err
	}
	return h, nil
}

// grant gives the pod's user access to the hypervisors' devices that the kubelet
// has allocated to the container.
func (p *podVMs) grant(ctx context.Context, h *podHome) error {
	var err error
	if h.allocated, err = p.node.Allocated(ctx, h.pod.Namespace, h.pod.Name, h.container.Name); err != nil {
		return fmt.Errorf("%w: %w", errNotYet, err)
	}
	if h.peer.UID == 0 {
		return nil
	}
	for _, hv := range p.agent.node.hypervisors.All() {
		for _, r := range hv.DeviceRequests() {
			if !h.allocated[r.Resource] {
				continue
			}
			if err := p.node.GrantDevice(h.shimID, r.Path, h.peer.UID); err != nil {
				return fmt.Errorf("giving the pod's user %d access to what %s stands for: %w", h.peer.UID, r.Resource, err)
			}
		}
	}
	return nil
}

// describe asks the shim what it is there for, and what the VMMs beside it can do.
func (p *podVMs) describe(ctx context.Context, h *podHome) (*shim.Described, error) {
	d, err := h.conn.Describe(ctx)
	if err != nil {
		return nil, err
	}
	var said []vmm.Saying
	if err := json.Unmarshal(d.VMMs, &said); err != nil {
		return nil, fmt.Errorf("what the VMMs in the pod's image say of themselves: %w", err)
	}
	h.told, h.broken = make(map[string]vmm.VMM), make(map[string]string)
	for _, s := range said {
		for _, v := range p.agent.node.vmms {
			t, tells := v.(vmm.Teller)
			if !tells || v.Name() != s.Name {
				continue
			}
			if h.broken[s.Name] = s.Error; s.Error != "" {
				continue
			}
			if h.told[s.Name], err = t.Told(s.Said); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

// launch boots the VM that a shim was started for, or restores it.
func (p *podVMs) launch(ctx context.Context, h *podHome, d *shim.Described) (*machine, error) {
	if d.Restore != nil {
		return p.restore(ctx, h, d.Restore)
	}
	s, err := p.specification(h, d)
	if err != nil {
		return nil, err
	}
	return p.run(h, s, string(h.pod.UID), func(m *machine) error {
		l := &launch{agent: p.agent, m: m, spec: s, progress: ignoreProgress}
		return l.run(ctx, "")
	})
}

// specification is the one that the container names, for a guest named as its pod
// unless it has a name.
func (p *podVMs) specification(h *podHome, d *shim.Described) (*vmletv1.VirtualMachineSpec, error) {
	s, err := spec.Parse(d.Specification, d.SpecificationName)
	if err != nil {
		return nil, err
	}
	if s.Name == "" {
		s.Name = nameFor(h.pod.Name)
	}
	return s, p.agent.validate(s)
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
func (p *podVMs) restore(ctx context.Context, h *podHome, r *shim.PodRestore) (*machine, error) {
	i, err := parseImage(r.Manifest, filepath.Join(r.Directory, "manifest.json"))
	if err != nil {
		return nil, err
	}
	o := restoreOptions{
		directory: r.Directory, lazy: r.Lazy, allowChangedDisks: r.AllowChangedDisks, newIdentity: r.NewIdentity,
	}
	if err := p.agent.identify(i, o); err != nil {
		return nil, err
	}
	return p.run(h, i.spec, i.id, func(m *machine) error {
		return p.agent.launchImage(ctx, m, i, o, ignoreProgress)
	})
}

func ignoreProgress(shim.Progress) {}

// run enters the VM and has it launched.
func (p *podVMs) run(h *podHome, s *vmletv1.VirtualMachineSpec, id string, launch func(*machine) error) (*machine, error) {
	m, done := p.enter(h, s, id)
	defer done()
	if err := launch(m); err != nil {
		return nil, err
	}
	p.warn(h, m)
	return m, nil
}

// enter lists the VM. An earlier run of the same pod, or of one of the same name
// that is gone, makes way for it.
func (p *podVMs) enter(h *podHome, s *vmletv1.VirtualMachineSpec, id string) (*machine, func()) {
	vm := newRecord(s, id)
	vm.Status.Pod = h.reference()
	vm.Status.CreatedAt = timestamppb.New(h.pod.CreationTimestamp.Time)
	for {
		m, done := p.agent.enter(h.name(), h, vm)
		if done != nil {
			return m, done
		}
		p.agent.drop(m)
	}
}

// adopt takes up a VM that an earlier agent has launched.
func (p *podVMs) adopt(ctx context.Context, h *podHome, w shim.Welcome, d *shim.Described) (*machine, error) {
	l, err := h.kept(w)
	if err != nil {
		return nil, err
	}
	i, err := imageOf(&l.Manifest, "what the shim keeps of the launch")
	if err != nil {
		return nil, err
	}
	s := i.spec
	if d.Restore == nil {
		if s, err = p.specification(h, d); err != nil {
			return nil, err
		}
	}
	m, done := p.enter(h, s, i.id)
	defer done()
	(&adoption{agent: p.agent, m: m, lease: l}).takeUp(ctx, h.conn)
	return m, nil
}

// warn says so in the record if a container's memory limit is less than what the
// VM may come to.
func (p *podVMs) warn(h *podHome, m *machine) {
	limit, has := h.container.Resources.Limits[corev1.ResourceMemory]
	status := m.snapshot().GetStatus()
	hv, known := p.agent.node.hypervisors.Get(status.GetHypervisor())
	if !has || !known {
		return
	}
	need, err := overhead.Of(overhead.Request{
		Spec: status.GetEffectiveSpec(), Hypervisor: hv, VMM: status.GetVmm().GetName(), Arch: p.agent.arch,
	})
	if err != nil || need.PodLimit() <= uint64(limit.Value()) {
		return
	}
	message := fmt.Sprintf("the container's memory limit, %s, is less than the %s that the VM may need: the kernel kills it then (vmlet overhead says what for)",
		limit.String(), spec.FormatQuantity(need.PodLimit()))
	m.log.Warn(message)
	m.note(status.GetState(), message)
}

// systemPods are the pods of this machine.
type systemPods struct {
	kubeletDir string
	pods       *pods.Pods
}

func (s systemPods) Dial(ctx context.Context, dir string) (Shim, pods.Peer, error) {
	conn, err := shim.DialSocket(ctx, dir, shim.SocketName)
	if err != nil {
		return nil, pods.Peer{}, err
	}
	peer, err := pods.PeerOf(conn)
	if err != nil {
		return nil, peer, errors.Join(err, conn.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, shimPatience)
	defer cancel()
	client, err := shim.NewClient(ctx, conn)
	if err != nil {
		return nil, peer, err
	}
	return client, peer, nil
}

func (systemPods) Identify(pid int) (shim.ShimProcess, error) { return shim.Identify(pid) }

func (systemPods) Place(p shim.ShimProcess) (pods.Place, error) {
	place, err := pods.PlaceOf("/proc", p.PID)
	return place, errors.Join(err, stillThere(p))
}

// stillThere is asked after a process was looked at by its number, which may have
// gone to another meanwhile.
func stillThere(p shim.ShimProcess) error {
	if shim.ProcessAlive(p) {
		return nil
	}
	return fmt.Errorf("process %d: %w", p.PID, os.ErrProcessDone)
}

func (s systemPods) Container(ctx context.Context, uid types.UID, id string) (*corev1.Pod, *corev1.Container, error) {
	return s.pods.Container(ctx, uid, id)
}

func (s systemPods) Gone(ctx context.Context, uid types.UID) error { return s.pods.Gone(ctx, uid) }

func (s systemPods) Allocated(ctx context.Context, namespace, pod, container string) (map[string]bool, error) {
	return pods.Allocated(ctx, s.kubeletDir, namespace, pod, container)
}

func (systemPods) GrantDevice(p shim.ShimProcess, path string, uid uint32) error {
	root, err := pods.Root("/proc", p.PID)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := stillThere(p); err != nil {
		return err
	}
	return pods.GrantDevice(root, path, uid)
}
