package claimwatch

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vmlet/vmlet/contract"
)

const (
	shop      = "shop"
	directory = "restore-web-20260701T080000Z"
	ownPod    = "vmlet-controller-0"
)

// server is an API server: pods with their history, claims, and the record.
type server struct {
	t *testing.T

	mu      sync.Mutex
	rv      int
	history []watch.Event
	floor   int // what happened up to here is forgotten
	pods    map[string]*corev1.Pod
	claims  map[string]*corev1.PersistentVolumeClaim
	changed chan struct{}
	cut     chan struct{} // closed: all watches end
	// deaf: no watch can be opened. onPods is called before pods are listed.
	deaf   bool
	onPods func()

	text    string
	version int
	// refuse is what the next write of the record ends with, carried out if lost.
	refuse error
	lost   bool
}

func newServer(t *testing.T) *server {
	s := &server{
		t: t, rv: 100, floor: 100, pods: map[string]*corev1.Pod{}, claims: map[string]*corev1.PersistentVolumeClaim{},
		changed: make(chan struct{}), cut: make(chan struct{}),
	}
	s.claims["pg"] = blockClaim("pg")
	s.put(pod(ownPod, "", nil))
	s.put(pod("virt-launcher-web-1", "pg", map[string]string{contract.LabelApp: contract.LabelAppLauncher, contract.LabelCreatedBy: "instance-1"}))
	return s
}

func blockClaim(name string) *corev1.PersistentVolumeClaim {
	block := corev1.PersistentVolumeBlock
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, UID: "claim-1"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeMode: &block, VolumeName: "pv-1"},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
}

// pod runs on a node and mounts a claim.
func pod(name, claim string, labels map[string]string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{Name: contract.ContainerCompute}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if labels[contract.LabelApp] == contract.LabelAppLauncher {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", UID: types.UID(labels[contract.LabelCreatedBy]), Controller: new(true)}}
	}
	if claim != "" {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}
	}
	return p
}

func (s *server) put(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := watch.Modified
	if s.pods[p.Name] == nil {
		kind = watch.Added
	}
	s.happen(kind, p.DeepCopy())
}

func (s *server) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.happen(watch.Deleted, s.pods[name].DeepCopy())
}

// happen adds to the history; mu is held.
func (s *server) happen(kind watch.EventType, p *corev1.Pod) {
	s.rv++
	p.ResourceVersion = strconv.Itoa(s.rv)
	if s.pods[p.Name] = p; kind == watch.Deleted {
		delete(s.pods, p.Name)
	}
	s.history = append(s.history, watch.Event{Type: kind, Object: p})
	close(s.changed)
	s.changed = make(chan struct{})
}

// interrupt ends all watches.
func (s *server) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

// forget has the history begin now.
func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	s.floor = s.rv
}

func (s *server) set(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func (s *server) Position(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strconv.Itoa(s.rv), nil
}

func (s *server) Watch(ctx context.Context, from string) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, err := strconv.Atoi(from)
	switch {
	case err != nil:
		s.t.Errorf("a watch from %q", from)
		return nil, err
	case s.deaf:
		return nil, apierrors.NewServiceUnavailable("deaf")
	case at < s.floor:
		return nil, apierrors.NewResourceExpired("too old resource version")
	}
	out := make(chan watch.Event)
	w := watch.NewProxyWatcher(out)
	go s.feed(out, w, at, s.cut)
	return w, nil
}

func (s *server) feed(out chan<- watch.Event, w *watch.ProxyWatcher, at int, cut <-chan struct{}) {
	defer close(out)
	for {
		s.mu.Lock()
		var next *watch.Event
		for i := range s.history {
			if rv, _ := strconv.Atoi(s.history[i].Object.(*corev1.Pod).ResourceVersion); rv > at {
				next, at = &s.history[i], rv
				break
			}
		}
		changed := s.changed
		s.mu.Unlock()
		if next == nil {
			select {
			case <-changed:
				continue
			case <-cut:
			case <-w.StopChan():
			}
			return
		}
		select {
		case out <- *next:
		case <-cut:
			return
		case <-w.StopChan():
			return
		}
	}
}

func (s *server) Pods(_ context.Context, namespace string, each func(*corev1.Pod)) error {
	if s.onPods != nil {
		s.onPods()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		if p := s.pods[name]; p.Namespace == namespace {
			each(p.DeepCopy())
		}
	}
	return nil
}

func (s *server) Claim(_ context.Context, claim types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[claim.Name]; c != nil {
		return c, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), claim.Name)
}

func (s *server) Mark(_ context.Context, mark string) error {
	p := pod(ownPod, "", nil)
	p.Annotations = map[string]string{markAnnotation: mark}
	s.put(p)
	return nil
}

func (s *server) Marked(p *corev1.Pod) string { return p.Annotations[markAnnotation] }

func (s *server) Read(context.Context) (string, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text, strconv.Itoa(s.version), nil
}

func (s *server) Write(_ context.Context, text, version string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version != strconv.Itoa(s.version) {
		return "", apierrors.NewConflict(schema.GroupResource{}, recordName, fmt.Errorf("version %s, now %d", version, s.version))
	}
	err := s.refuse
	s.refuse = nil
	if err == nil || s.lost {
		s.text, s.version = text, s.version+1
	}
	return strconv.Itoa(s.version), err
}

// controller is a Watch that runs.
type controller struct {
	*Watch
	t    *testing.T
	told []string
	stop func()
	err  error // of Run, after stop
}

// starts starts a controller on a server. needed is what Options.Needed says.
func (s *server) starts(needed bool) *controller {
	c := &controller{t: s.t, Watch: New(Options{
		API: s, Needed: func(Use) bool { return needed }, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { c.err = c.Run(ctx) })
	all.Go(func() {
		for {
			select {
			case vm := <-c.Changed():
				c.told = append(c.told, vm.String())
			case <-ctx.Done():
				return
			}
		}
	})
	c.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	s.t.Cleanup(c.stop)
	synctest.Wait()
	return c
}

// kill has the controller's last words not come to the server.
func (c *controller) kill(s *server) {
	text, version := s.text, s.version
	c.stop()
	s.set(func() { s.text, s.version = text, version })
}

func (c *controller) begin() error {
	return c.Begin(context.Background(), Use{Namespace: shop, VM: "web", Instance: "instance-1", Directory: directory}, []string{"pg"})
}

// verdict is what Look comes to of the VM's claim.
func (c *controller) verdict(s *server) string {
	c.t.Helper()
	uses, err := c.Look(context.Background(), shop, directory)
	if err != nil {
		return err.Error()
	}
	claim, _ := s.Claim(context.Background(), types.NamespacedName{Name: "pg"})
	if len(uses) == 0 {
		return Spoiled("pg", claim, nil)
	}
	return Spoiled("pg", claim, &uses[0])
}
