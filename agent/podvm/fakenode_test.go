package podvm

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/pods"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/filesocket"
	"github.com/vmlet/vmlet/shim"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	podUID = "5f2b9c1e-8a34-4d6f-9b7a-0c1d2e3f4a5b"
	podVM  = "default/web"
	podKVM = "devices.kubevirt.io/kvm"
)

// fakeNode is what an agent learns of one pod. It outlives the agent.
type fakeNode struct {
	w   *world
	dir string // the pod's volume

	mu        sync.Mutex
	proc      *vmtest.Proc
	peer      pods.Peer
	place     pods.Place
	pod       *corev1.Pod
	podErr    error
	allocated map[string]bool
	allocErr  error
	asked     int // how often the kubelet was
	dialled   int
	dialErr   error
	grantErr  error
	cpus      []int
	granted   []string
	gone      chan struct{}
	others    []*corev1.Pod       // of this node
	awaited   int                 // how often one of them was looked for
	attached  string              // the folder that any of them attaches; empty: none does
	poses     map[types.UID]error // why one of them never does
	process   *pods.Process       // that may run its VM, beside proc
	processes error               // why that is not known
	standIn   *exec.Cmd           // a process of this machine in its shim's place
	devices   map[string]uint64   // numbers of its container's, by path

	servedUntil <-chan struct{} // closed when its volume is to be left
}

func newFakeNode(w *world) *fakeNode {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: podUID, Namespace: "default", Name: "web"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(30)),
			Containers: []corev1.Container{{Name: "vm"}},
		},
	}
	return &fakeNode{
		w: w, dir: w.T.TempDir(), pod: pod, peer: pods.Peer{UID: 1000},
		place:     pods.Place{Pod: podUID, Container: "c0ffee", Cgroups: map[string]string{"": "/kubepods/pod/c0ffee"}},
		allocated: map[string]bool{podKVM: true}, gone: make(chan struct{}),
	}
}

// newNamesake is another pod of the same name, made after the first was removed by force.
func newNamesake(w *world) *fakeNode {
	n := newFakeNode(w)
	n.pod.UID = "2c1d9a70-1111-4d6f-9b7a-0c1d2e3f4a5b"
	n.place.Pod = n.pod.UID
	return n
}

const podSpec = "boot: {kernel: {path: /kernel}}\n"

// container starts the pod's container.
func (n *fakeNode) container(change ...func(*vmtest.Pod)) *vmtest.Proc {
	n.w.T.Helper()
	n.w.Mu.Lock()
	n.w.NextPID++
	p := &vmtest.Proc{
		W: n.w.World, PID: n.w.NextPID, Dead: make(chan struct{}),
		Options: shim.StartOptions{RunDir: n.dir, StateDir: n.dir, RunID: fmt.Sprint("run-", n.w.NextPID)},
		Pod: &vmtest.Pod{
			Described: shim.Described{Specification: []byte(podSpec), SpecificationName: "/guest/vm.yaml", VMMs: json.RawMessage(`[{"name":"qemu","said":"fake"},{"name":"other"}]`)},
			RunDir:    "/run/vmlet",
		},
	}
	p.Pod.RunID = p.Options.RunID
	n.w.Procs[n.dir] = p
	n.w.Mu.Unlock()
	for _, f := range change {
		f(p.Pod)
	}
	n.mu.Lock()
	n.proc, n.peer.PID = p, p.PID
	n.mu.Unlock()
	n.announce()
	return p
}

// announce is what a shim's coming looks like in its folder.
func (n *fakeNode) announce() {
	n.w.T.Helper()
	temp := filepath.Join(n.dir, ".tmp")
	if err := os.WriteFile(temp, nil, 0o600); err != nil {
		n.w.T.Fatal(err)
	}
	if err := os.Rename(temp, filepath.Join(n.dir, shim.PIDName)); err != nil {
		n.w.T.Fatal(err)
	}
}

func (n *fakeNode) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func (n *fakeNode) Dial(context.Context, string) (place.Shim, pods.Peer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dialled++
	switch {
	case n.dialErr != nil:
		return nil, pods.Peer{}, n.dialErr
	case n.proc == nil:
		return nil, pods.Peer{}, fs.ErrNotExist
	case !n.proc.Alive():
		return nil, pods.Peer{}, unix.ECONNREFUSED
	}
	return n.proc.Connect(), n.peer, nil
}

// Identify: no process of this machine, as the fakes are none, but what a test has put in its place.
func (n *fakeNode) Identify(pid int) (shim.ShimProcess, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.standIn != nil {
		return shim.Identify(n.standIn.Process.Pid)
	}
	return shim.ShimProcess{PID: pid, StartTime: 1}, nil
}

func (n *fakeNode) Place(shim.ShimProcess) (pods.Place, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.place, nil
}

func (n *fakeNode) CPUs(shim.ShimProcess) ([]int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cpus, nil
}

func (n *fakeNode) Container(context.Context, types.UID, string) (*corev1.Pod, *corev1.Container, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.podErr != nil {
		return nil, nil, n.podErr
	}
	return n.pod, &n.pod.Spec.Containers[0], nil
}

func (n *fakeNode) Allocated(_ context.Context, namespace, pod, container string) (map[string]bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	if namespace != n.pod.Namespace || pod != n.pod.Name || container != "vm" {
		n.w.T.Errorf("asked for %s/%s %s", namespace, pod, container)
	}
	return n.allocated, n.allocErr
}

func (n *fakeNode) GrantDevice(p shim.ShimProcess, path string, uid uint32) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.granted = append(n.granted, fmt.Sprintf("%s to %d in the container of %d", path, uid, p.PID))
	return n.grantErr
}

func (n *fakeNode) GrantVolume(p shim.ShimProcess, path string, uid uint32) error {
	return n.GrantDevice(p, "volume "+path, uid)
}

func (n *fakeNode) Volume(_ shim.ShimProcess, path string) (place.FileID, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if number, has := n.devices[path]; has {
		return place.FileID{Block: true, Device: number}, nil
	}
	return place.FileID{}, fs.ErrNotExist
}

// MayRunVM is the shim for as long as it is there, or what a test has put there.
func (n *fakeNode) MayRunVM(context.Context, types.UID) (*pods.Process, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil && n.proc.Alive() {
		return &pods.Process{PID: n.proc.PID, Name: "vmlet-shim"}, nil
	}
	return n.process, n.processes
}

// Pod knows those that a test has made, and waits for no others.
func (n *fakeNode) Pod(_ context.Context, uid types.UID) (*corev1.Pod, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range append([]*corev1.Pod{n.pod}, n.others...) {
		if p.UID == uid {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no pod %s", uid)
}

// Attachment waits for one that a test makes.
func (n *fakeNode) Attachment(ctx context.Context, namespace string, to types.UID, refused map[types.UID]bool) (*corev1.Pod, error) {
	for ; ; time.Sleep(time.Millisecond) {
		n.mu.Lock()
		n.awaited++
		for _, p := range n.others {
			if p.Namespace == namespace && p.Labels[contract.LabelAttachedTo] == string(to) && !refused[p.UID] {
				n.mu.Unlock()
				return p, nil
			}
		}
		n.mu.Unlock()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

func (n *fakeNode) Attached(_ context.Context, pod *corev1.Pod) (*os.File, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.poses[pod.UID]; err != nil {
		return nil, err
	}
	if n.attached == "" {
		return nil, fmt.Errorf("pod %s hands nothing out", pod.UID)
	}
	return filesocket.OpenFolder(n.attached)
}

func (n *fakeNode) Gone(ctx context.Context, uid types.UID) error {
	select {
	case <-n.gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// runner is that of an agent's pods.
func (n *fakeNode) runner(a *testAgent) *Runner {
	return &Runner{manager: a.Manager, node: a.node, log: a.log, pods: n, arrivals: newArrivals(), promises: new(promises)}
}

// servePod has an agent serve the pod's volume; unmount ends that and waits for it.
func (n *fakeNode) servePod(t *testing.T, a *testAgent) (unmount func()) {
	t.Helper()
	return n.serveWith(t, a, n.runner(a))
}

// serveWith is servePod with a runner that the test has.
func (n *fakeNode) serveWith(t *testing.T, a *testAgent, p *Runner) (unmount func()) {
	t.Helper()
	t.Cleanup(p.volumes.Close) // as Run does: root has few instances of inotify
	ctx, cancel := context.WithCancel(a.ctx)
	n.servedUntil = ctx.Done()
	done := make(chan struct{})
	a.Go(func() {
		defer close(done)
		p.serve(ctx, pods.Volume{UID: n.pod.UID, Dir: n.dir})
	})
	t.Cleanup(cancel)
	return func() {
		cancel()
		<-done
	}
}
