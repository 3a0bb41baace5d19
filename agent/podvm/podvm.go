// Package podvm runs the VMs of this node's pods: it finds the shims in their containers,
// asks the API server whose they are, and hands the VMs to their manager (agent/vm), with a
// placement of its own. What a pod, its shim and its VMM say is bounded before it is decoded
// or kept. Start reading at Runner.
package podvm

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/vmlet/vmlet/agent/kube"
	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/pods"
	"github.com/vmlet/vmlet/agent/vm"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/filesocket"
	"github.com/vmlet/vmlet/internal/inotify"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm/described"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// errNotYet is wrapped by what keeps a pod's VM from being started for a while:
// the kubelet restarts, the API server has not said yet whose pod it is, who makes
// networks is busy or has just ended.
var errNotYet = errors.New("not yet")

// How long until a pod's VM is tried again, at first and at most.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// newRetry returns the waits between tries: twice as long each time.
func newRetry() *wait.Backoff {
	return &wait.Backoff{Duration: firstRetry, Factor: 2, Steps: 64, Cap: lastRetry}
}

// podSource is what an agent learns of pods, and does to them.
type podSource interface {
	// Dial connects to the shim in a volume; the peer is who listens there.
	Dial(ctx context.Context, dir string) (place.Shim, pods.Peer, error)
	Identify(pid int) (shim.ShimProcess, error)
	// Place is where that very process is.
	Place(p shim.ShimProcess) (pods.Place, error)
	Container(ctx context.Context, uid types.UID, id string) (*corev1.Pod, *corev1.Container, error)
	Allocated(ctx context.Context, namespace, pod, container string) (map[string]bool, error)
	// CPUs are those that the very process may use.
	CPUs(p shim.ShimProcess) ([]int, error)
	// GrantDevice gives a user access to a device in that very process's container.
	GrantDevice(p shim.ShimProcess, path string, uid uint32) error
	// GrantVolume does so for a volume that is a block device.
	GrantVolume(p shim.ShimProcess, path string, uid uint32) error
	// Volume is the file of a volume that is a block device, in that very process's container.
	Volume(p shim.ShimProcess, path string) (place.FileID, error)
	// MayRunVM returns a process of a pod that may be its VM, or launch one; nil: none.
	MayRunVM(ctx context.Context, uid types.UID) (*pods.Process, error)
	// Pod waits until the API server has a pod on this node.
	Pod(ctx context.Context, uid types.UID) (*corev1.Pod, error)
	// Attachment waits for a pod on this node that attaches a volume to a pod of a namespace, and was not refused.
	Attachment(ctx context.Context, namespace string, to types.UID, refused map[types.UID]bool) (*corev1.Pod, error)
	// Attached takes the folder that a pod hands out, which attaches it to another's VM.
	Attached(ctx context.Context, pod *corev1.Pod) (*os.File, error)
	// Gone waits until there is no such pod.
	Gone(ctx context.Context, uid types.UID) error
}

// Runner runs the VMs of this node's pods. Its methods may be called concurrently.
type Runner struct {
	manager *vm.Manager
	// node is what the node can run VMs with, pods what is known of its pods.
	node *node.Node
	pods podSource
	log  *slog.Logger
	// networks makes those of guests; nil: no networks are made.
	networks networkMaker
	// namespace opens the network namespace of a process.
	namespace func(shim.ShimProcess) (*os.File, error)
	words
	recent recentVMMs
	stack  stack
	// volumes are watched through one inotify instance: root has few, and any pod may have
	// a volume of that name.
	volumes inotify.Shared

	arrivals *arrivals
	promises *promises
	// run does the work of Run.
	run func(context.Context) error
}

// Options are what the VMs of pods are run with.
type Options struct {
	Manager *vm.Manager
	Node    *node.Node
	Client  *kube.Client
	// Networks makes guests' networks in pods, a *helper.Client; nil: the configuration has
	// it that nobody does.
	Networks networkMaker
	// KubeletDir is the kubelet's --root-dir, StateDir the agent's folder that survives a reboot.
	KubeletDir, StateDir string
	// Report takes what the VMMs in a virtualisation stack's image say on this node; nil: there is no such
	// image here any more.
	Report func(*described.Report)
	Log    *slog.Logger
}

// New makes a Runner; Run has it run VMs.
func New(o Options) (*Runner, error) {
	promised, err := readPromises(o.StateDir)
	if err != nil {
		return nil, err
	}
	known := pods.New()
	p := &Runner{manager: o.Manager, node: o.Node, log: o.Log, networks: o.Networks, namespace: networkNamespace, arrivals: newArrivals(), promises: promised, pods: systemPods{
		kubeletDir: o.KubeletDir, pods: known, room: semaphore.NewWeighted(podRoom), taker: new(filesocket.Taker),
	}}
	p.sayings.room = semaphore.NewWeighted(podRoom)
	p.stack = stack{namespace: o.Client.Namespace(), report: o.Report}
	p.run = func(ctx context.Context) error {
		ours := kube.Following{Resource: "pods", Fields: "spec.nodeName=" + o.Client.Node(), What: "following the pods of this node"}
		o.Manager.Go(func() { known.Run(kube.Quiet(ctx), o.Client.ListWatch(ours, o.Log)) })
		return pods.Each(ctx, o.KubeletDir, o.Log, p.arrivals.list, p.serve)
	}
	return p, nil
}

// Run runs the pods' VMs until ctx ends; they go on after that.
func (p *Runner) Run(ctx context.Context) {
	defer p.volumes.Close()
	patience := time.AfterFunc(takeUpPatience, p.arrivals.end)
	defer patience.Stop()
	if err := p.run(ctx); err != nil {
		p.log.Error("VMs of pods are not found any more", "error", err)
	}
}

// serve follows a pod's volume: each run of the container announces itself there.
func (p *Runner) serve(ctx context.Context, v pods.Volume) {
	log := newThrottledLog(p.log.With("pod", v.UID))
	// The socket is there a moment before it is listened on, the other file later.
	announced := p.volumes.Folder(v.Dir, shim.SocketName, shim.PIDName)
	defer announced.Close()
	defer p.manager.Go(func() { p.forget(v.UID) })
	defer p.arrivals.looked(v)
	defer p.surveyEnds(v)
	// What a pod does with its volume is not to keep the agent busy.
	often := rate.NewLimiter(rate.Every(vm.DialInterval), vm.DialBurst)
	for often.Wait(ctx) == nil {
		blind := announced.Arm()
		if blind != nil {
			log.warn("failed to watch the pod's volume: looking into it at intervals", blind, "directory", v.Dir, "interval", vm.DialInterval)
		}
		conn, peer, err := p.pods.Dial(ctx, v.Dir)
		if err == nil {
			p.attend(ctx, v, conn, peer, log)
			continue
		}
		var again <-chan time.Time
		if blind != nil {
			again = time.After(vm.DialInterval)
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED) {
			log.warn("failed to connect to the shim of a pod's VM", err)
			again = time.After(lastRetry) // it may have been too busy to answer
		}
		p.arrivals.looked(v)
		select {
		case <-announced.Changes():
		case <-again:
		case <-ctx.Done():
		}
	}
}

// attend is one run of a pod's container, from its announcement to its end.
func (p *Runner) attend(ctx context.Context, v pods.Volume, conn place.Shim, peer pods.Peer, log *throttledLog) {
	if conn.Welcome().Launching {
		// For an agent that is gone, and about to be undone: it is to say hello again.
		idle(ctx, conn, firstRetry)
		conn.Close()
		return
	}
	for retry := newRetry(); ; {
		m, err := p.take(ctx, v, conn, peer)
		p.arrivals.looked(v)
		if err == nil {
			p.awaitEnd(ctx, m)
			return
		}
		if ctx.Err() != nil {
			break // the agent ends or the pod does
		}
		if errors.Is(err, errSurveyed) {
			if idle(ctx, conn, surveyEvery) != nil {
				break
			}
			continue
		}
		if errors.As(err, new(*vm.RunsError)) {
			log.warn("failed to follow a VM that has gone on from its image: adopting it", err)
			break
		}
		// One that runs is not ended because this agent can't take it up.
		if !errors.Is(err, errNotYet) && conn.Welcome().VMMPID == 0 {
			log.warn("the pod's VM was refused", err)
			p.turnAway(ctx, conn, lastWords(err))
			return
		}
		log.warn("the pod's VM is not taken up yet: trying again", err)
		if idle(ctx, conn, retry.Step()) != nil {
			break
		}
	}
	conn.Close()
}

// idle waits, and returns an error if the shim goes or ctx ends meanwhile.
func idle(ctx context.Context, conn place.Shim, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case _, open := <-conn.Events():
			if !open {
				return shim.ErrDisconnected
			}
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// turnAway ends a shim, which tells the pod's owner why, and waits until it has gone.
func (p *Runner) turnAway(ctx context.Context, conn place.Shim, why contract.Ending) {
	bounded, cancel := context.WithTimeout(ctx, place.EndPatience)
	defer cancel()
	_ = conn.Release(bounded, &why) // it may be gone already
	_ = idle(bounded, conn, place.EndPatience)
	conn.Close()
}

// awaitEnd returns when a VM has ended, or the agent does. A connection that is
// lost and found again is a new live.
func (p *Runner) awaitEnd(ctx context.Context, m *vm.VM) {
	for ended := m.Ended(); ended != nil; ended = m.Ended() {
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
	}
}

// forget drops the VM of a pod when that is gone: one that has ended is listed for
// as long as its pod is.
func (p *Runner) forget(uid types.UID) {
	if p.pods.Gone(p.manager.Context(), uid) != nil {
		return // the agent ends
	}
	for _, m := range p.manager.All() {
		h, is := m.Placement().(*placement)
		if !is || h.pod.UID != uid {
			continue
		}
		p.awaitEnd(p.manager.Context(), m) // its end may be known here a moment later
		p.awaitShim(h)
		if p.manager.Context().Err() == nil {
			p.manager.Dismiss(m)
			m.Publish(&nodev1.Event{Type: "deleted", Message: "its pod is gone"})
		}
	}
}

// awaitShim returns when a pod's shim has ended, also one that did not answer, or the agent ends.
func (p *Runner) awaitShim(h *placement) {
	ctx := p.manager.Context()
	for place.WaitForShim(ctx, h) != nil {
		select {
		case <-time.After(lastRetry): // it is not known whether it runs
		case <-ctx.Done():
			return
		}
	}
}
