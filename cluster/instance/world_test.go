package instance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/calls"
	"github.com/vmlet/vmlet/cluster/claimuse"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/observe"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/cluster/saves"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/machineid"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// finalizerKubelet stands for the kubelet's part in a pod's deletion: the object of a pod that
// is bound stays until its kubelet has ended the containers, or it is deleted by force.
const finalizerKubelet = "test/kubelet"

var vmKey = types.NamespacedName{Namespace: scene.Namespace, Name: scene.VM}

// world is a cluster with one VM's name: an API server, a scheduler, kubelets, agents, the
// garbage collector and what makes instances. Everything but the controller acts in turn.
type world struct {
	t      *testing.T
	server client.WithWatch
	now    time.Time
	uids   int
	nodes  map[string]*machine
	// restarts: another instance is made when there is none, as for a VirtualMachine.
	restarts bool
	tick     time.Duration // that a turn takes
	// writes are those of the controllers; before is asked ahead of each.
	writes []string
	before func(n int, what string) outcome
	events []string
	// cached is what the controllers read, if they are behind.
	cached      client.Client
	errors      []error
	asks        Calls   // how controllers call agents
	killBounded bool    // the last KillVM or StopVM had a deadline
	hurried     []int64 // the grace periods of StopVM, in ms
	// ownGrace is the grace period that guests were started with; nil: they don't say.
	ownGrace *durationpb.Duration
	// mutate is a webhook that changes pods that are patched.
	mutate func(*corev1.Pod)
	// refresh is called ahead of each turn of a controller.
	refresh func()
	// process is which of several controllers acts; each has its own calls.
	process int
	calls   map[int]map[types.NamespacedName]*saves.Call
	// saveFaults are how the next saves end; nil: they succeed. ahead is how many saves of other
	// VMs the next calls wait for, one a turn. written are the directories of images.
	saveFaults  []error
	ahead       int
	directories map[string]bool
	images      int
	promising   sync.Mutex // agents are asked at once
	// careful: nobody but controllers takes attachment pods away.
	careful bool
	// unattachable has attachment pods get no node.
	unattachable bool
}

// stale has f called ahead of each turn of a controller, to renew its cache or not.
func (w *world) stale(f func()) { w.refresh = f }

// clientAt is a cache of a time.
type clientAt struct {
	at     time.Time
	client client.Client
}

// machine is a node: its kubelet, its agent and its guests.
type machine struct {
	w    *world
	name string
	// hardware is what the machine's system UUID stands for.
	hardware string
	// dead: kubelet and agent are not there; guests may run on.
	dead, noAgent, noKubelet bool
	silent                   bool          // Kubernetes has noticed
	renewed                  time.Time     // the node's Lease
	behind                   time.Duration // the node's clock is
	heardAt                  time.Time     // the agent was heard last
	vms                      map[types.UID]*fakeGuest
	promised                 map[types.UID]bool
}

// fakeGuest is a VM of a pod.
type fakeGuest struct {
	vm      string // the disk that it writes to
	runs    bool
	stays   bool // it does not shut down when asked to
	unseen  bool // the node's runtime has lost sight of its container
	end     nodev1.EndReason
	state   nodev1.State
	code    int32
	message string
	// reads is how many turns its shim takes yet to read the image that it goes on from, once that is attached.
	reads int
	// saving is the process whose call saves it; image and folder are what it was saved to.
	saving        *saves.Call
	turns         int
	image, folder string
}

// outcome is what becomes of a write.
type outcome int

const (
	succeeds     outcome = iota
	fails                // an error, and nothing is written
	lost                 // an error, though it is written
	killedBefore         // the controller dies ahead of it
	killedAfter          // the controller dies after it
)

// errKilled is panicked with by a controller that dies.
var errKilled = errors.New("killed")

func newScheme(t *testing.T) *runtime.Scheme {
	s := runtime.NewScheme()
	if err := kubevirtv1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	s.AddKnownTypeWithName(schema.FromAPIVersionAndKind(claims.DataVolumeVersion, claims.DataVolumeKind), &unstructured.Unstructured{})
	s.AddKnownTypeWithName(schema.FromAPIVersionAndKind(claims.DataVolumeVersion, claims.DataVolumeKind+"List"), &unstructured.UnstructuredList{})
	// The fake client goes through all kinds at each write.
	s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{}, &corev1.Node{}, &corev1.NodeList{},
		&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaimList{}, &corev1.Event{}, &corev1.EventList{})
	return s
}

func builderFor(t *testing.T) *fake.ClientBuilder {
	b := fake.NewClientBuilder().WithScheme(newScheme(t)).
		WithStatusSubresource(&kubevirtv1.VirtualMachineInstance{}, &corev1.Pod{}, &corev1.Node{})
	for _, i := range observe.Indexes() {
		b = b.WithIndex(i.Object, i.Field, i.Values)
	}
	// The API server selects events by it.
	return b.WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string {
		return []string{string(o.(*corev1.Event).InvolvedObject.UID)}
	})
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), nodes: make(map[string]*machine), restarts: true, tick: time.Second, asks: atOnce{},
		calls: make(map[int]map[types.NamespacedName]*saves.Call), directories: make(map[string]bool)}
	w.server = builderFor(t).WithGlobalResourceVersionCounter().Build()
	w.addNode("node-a")
	w.addNode("node-b")
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) uid() types.UID {
	w.uids++
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", w.uids))
}

func (w *world) addNode(name string) {
	w.must(w.server.Create(w.t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: w.uid(), Labels: map[string]string{corev1.LabelArchStable: "amd64", contract.LabelSchedulable: "true"}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			NodeInfo:   corev1.NodeSystemInfo{SystemUUID: "hardware of " + name},
		},
	}))
	w.nodes[name] = w.newMachine(name)
}

// newMachine is one that was started just now.
func (w *world) newMachine(name string) *machine {
	return &machine{w: w, name: name, hardware: "hardware of " + name, renewed: w.now, heardAt: w.now, vms: make(map[types.UID]*fakeGuest), promised: make(map[types.UID]bool)}
}

// replace cuts a node's machine off, whose guests run on, and has another one take its name. It returns under which the first
// one is known then.
func (w *world) replace(name string) string {
	old := name + ", cut off"
	w.fail(name, false)
	w.nodes[old], w.nodes[name] = w.nodes[name], w.newMachine(name)
	w.nodes[name].hardware = "other hardware"
	n := w.nodeObject(name)
	n.Status.NodeInfo.SystemUUID = "other hardware"
	w.must(w.server.Status().Update(w.t.Context(), n))
	return old
}

func (w *world) nodeObject(name string) *corev1.Node {
	w.t.Helper()
	n, err := observe.Get(w.t.Context(), w.server, types.NamespacedName{Name: name}, new(corev1.Node))
	w.must(err)
	return n
}

// atOnce are calls that end before anybody asks again.
type atOnce struct{}

func (atOnce) Make(_ calls.Key, do func(context.Context) (Answers, error)) calls.Answer[Answers] {
	answers, err := do(context.Background())
	return calls.Answer[Answers]{Ended: true, Result: answers, Err: err}
}

// hanging are calls that end when a test says so, and are told then.
type hanging struct {
	made  map[calls.Key]func(context.Context) (Answers, error)
	ended map[calls.Key]calls.Answer[Answers]
}

func (h hanging) Make(key calls.Key, do func(context.Context) (Answers, error)) calls.Answer[Answers] {
	if a, has := h.ended[key]; has {
		delete(h.ended, key)
		return a
	}
	h.made[key] = do
	return calls.Answer[Answers]{}
}

func (h hanging) end(ctx context.Context) {
	for key, do := range h.made {
		answers, err := do(ctx)
		h.ended[key] = calls.Answer[Answers]{Ended: true, Result: answers, Err: err}
		delete(h.made, key)
	}
}

// controller is one that has just started.
func (w *world) controller() *Reconciler {
	cached, now := controllerClient{Client: w.strict(), w: w}, func() time.Time { return w.now }
	return &Reconciler{
		Observer: &observe.Observer{
			Client: cached, Live: live{w.server, w}, Agents: agents{w}, Saves: fakeSaves{w, w.process}, DataVolumes: true,
			PodName: scene.PodName, Images: launcher.Images, Now: now,
		},
		Client: cached, Agents: agents{w}, Pod: scene.MakePod, Attachment: attachPod, Saves: fakeSaves{w, w.process},
		Calls: w.asks, Events: w, Making: new(claimuse.Locks),
	}
}

func attachPod(vmi *kubevirtv1.VirtualMachineInstance, vm *corev1.Pod, claim string) (*corev1.Pod, error) {
	return launcher.Attachment(vmi, vm, claim, configuration.Default()), nil
}

// controllerClient writes to the API server, and reads from it or from a cache that is behind.
type controllerClient struct {
	client.Client
	w *world
}

func (c controllerClient) from() client.Reader {
	if c.w.cached != nil {
		return c.w.cached
	}
	return c.w.server
}

func (c controllerClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.from().Get(ctx, key, o, opts...)
}

func (c controllerClient) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	return c.from().List(ctx, l, opts...)
}

// snapshot is a cache that stays as the API server is now.
func (w *world) snapshot() client.Client {
	b := builderFor(w.t)
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.NodeList{}, &corev1.PersistentVolumeClaimList{}, &kubevirtv1.VirtualMachineInstanceList{}} {
		w.must(w.server.List(w.t.Context(), list))
		b = b.WithLists(list)
	}
	return b.Build()
}

// strict is the API server as controllers write to it: what they write is counted, may fail,
// and is refused where the real one refuses it.
func (w *world) strict() client.Client {
	count := func(what string, do func() error) error {
		w.writes = append(w.writes, what)
		become := succeeds
		if w.before != nil {
			become = w.before(len(w.writes), what)
		}
		switch become {
		case fails:
			return apierrors.NewInternalError(errors.New("etcd is away"))
		case killedBefore:
			panic(errKilled)
		}
		err := do()
		switch {
		case become == killedAfter:
			panic(errKilled)
		case become == lost && err == nil:
			return apierrors.NewTimeoutError("no answer", 1)
		}
		return err
	}
	return interceptor.NewClient(w.server, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return count("create "+kind(o), func() error { return w.create(ctx, o) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return count("patch "+kind(o), func() error {
				if data, err := p.Data(o); err != nil || !bytes.Contains(data, []byte("resourceVersion")) {
					return fmt.Errorf("a patch of a list without a resource version undoes what others write: %s, %v", data, err)
				}
				err := c.Patch(ctx, o, p, opts...)
				if patched, is := o.(*corev1.Pod); is && err == nil && w.mutate != nil {
					w.mutate(patched)
					err = c.Update(ctx, patched)
				}
				return err
			})
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return count("delete "+kind(o), func() error { return w.delete(ctx, o, opts...) })
		},
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return errors.New("the controller has no right to update whole objects")
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return count("patch "+sub+" of "+kind(o), func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return count("status "+kind(o), func() error {
				if o.GetResourceVersion() == "" {
					return errors.New("a status without a resource version overwrites what others write")
				}
				return c.SubResource(sub).Update(ctx, o, opts...)
			})
		},
	})
}

func kind(o client.Object) string {
	if _, is := o.(*corev1.Pod); is {
		return "pod"
	}
	return "instance"
}

func (w *world) create(ctx context.Context, o client.Object) error {
	p := o.(*corev1.Pod)
	p.UID, p.CreationTimestamp = w.uid(), metav1.NewTime(w.now)
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBurstable}
	return w.server.Create(ctx, p)
}

// delete is what the API server does with a pod: one that is bound stays until its kubelet
// lets it go, or it is deleted with a grace period of 0.
func (w *world) delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	var options client.DeleteOptions
	options.ApplyOptions(opts)
	var p corev1.Pod
	if err := w.server.Get(ctx, client.ObjectKeyFromObject(o), &p); err != nil {
		return err
	}
	if pre := options.Preconditions; pre == nil || pre.UID == nil {
		return errors.New("a deletion without the UID deletes whatever has the name by then")
	} else if *pre.UID != p.UID {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, p.Name, errors.New("the UID in the precondition does not match"))
	}
	if grace := options.GracePeriodSeconds; grace != nil && *grace == 0 {
		w.unhold(&p)
	} else if grace != nil {
		return errors.New("the grace period is the pod's own, or none for a node that is lost")
	}
	if err := w.server.Delete(ctx, &p); err != nil {
		return client.IgnoreNotFound(err)
	}
	left, err := observe.Get(ctx, w.server, client.ObjectKeyFromObject(&p), new(corev1.Pod))
	if left != nil {
		left.DeletionGracePeriodSeconds = options.GracePeriodSeconds
		err = w.server.Update(ctx, left)
	}
	return err
}

// unhold lets a pod's object go as far as the kubelet has to do with it.
func (w *world) unhold(p *corev1.Pod) {
	if i := slices.Index(p.Finalizers, finalizerKubelet); i >= 0 {
		p.Finalizers = slices.Delete(p.Finalizers, i, i+1)
		w.must(client.IgnoreNotFound(w.server.Update(w.t.Context(), p)))
	}
}

// Eventf records the event's type and reason.
func (w *world) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	w.events = append(w.events, kind+" "+reason)
}

func (w *world) instance() *kubevirtv1.VirtualMachineInstance {
	vmi, err := observe.Get(w.t.Context(), w.server, vmKey, new(kubevirtv1.VirtualMachineInstance))
	w.must(err)
	return vmi
}

func (w *world) phase() kubevirtv1.Phase {
	if vmi := w.instance(); vmi != nil {
		return vmi.Status.Phase
	}
	return "gone"
}

// pods are those of VMs.
func (w *world) pods() []corev1.Pod {
	return slices.DeleteFunc(w.allPods(), func(p corev1.Pod) bool { return p.Labels[contract.LabelApp] == contract.LabelAppAttachment })
}

func (w *world) allPods() []corev1.Pod {
	var all corev1.PodList
	w.must(w.server.List(w.t.Context(), &all, client.InNamespace(scene.Namespace)))
	return all.Items
}

// addInstance makes another instance of the VM.
func (w *world) addInstance(change ...func(*kubevirtv1.VirtualMachineInstance)) {
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: scene.Namespace, Name: scene.VM, UID: w.uid(), CreationTimestamp: metav1.NewTime(w.now), Generation: 1,
		Finalizers: []string{contract.FinalizerInstance}, Labels: map[string]string{"app": "web"},
	}}
	vmi.Spec.Domain.Devices.Interfaces = []kubevirtv1.Interface{{Name: "default", Masquerade: &kubevirtv1.InterfaceMasquerade{}}}
	for _, f := range change {
		f(vmi)
	}
	w.must(w.server.Create(w.t.Context(), vmi))
}

// turn is one of everybody but the controllers.
func (w *world) turn() {
	w.now = w.now.Add(w.tick)
	w.collect()
	w.restart()
	w.schedule()
	w.attach()
	w.goOnSaving()
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		if m := w.nodes[name]; !m.dead && !m.noAgent {
			m.heardAt = w.now
		}
		w.nodes[name].turn()
	}
	w.watchNodes()
	for _, m := range w.nodes {
		for uid, g := range m.vms {
			for _, other := range w.nodes {
				for id, h := range other.vms {
					if g.runs && h.runs && g.vm == h.vm && id != uid {
						w.t.Fatalf("VM %s runs twice, in the pods %s and %s: writes %v", g.vm, uid, id, w.writes)
					}
				}
			}
		}
	}
}

// collect is the garbage collector: it deletes pods whose owner is gone.
func (w *world) collect() {
	vmi := w.instance()
	for _, p := range w.pods() {
		owner := metav1.GetControllerOf(&p)
		if owner != nil && p.DeletionTimestamp == nil && (vmi == nil || owner.UID != vmi.UID) {
			w.must(w.server.Delete(w.t.Context(), &p))
		}
	}
}

// restart is the VirtualMachine's part: an instance that has ended is deleted, and another
// made when it is gone.
func (w *world) restart() {
	vmi := w.instance()
	switch {
	case !w.restarts:
	case vmi == nil:
		w.addInstance()
	case view.IsFinal(vmi.Status.Phase) && vmi.DeletionTimestamp == nil:
		w.must(w.server.Delete(w.t.Context(), vmi))
	}
}

// schedule binds pods to the first node that is ready, never one that is being deleted.
func (w *world) schedule() {
	for _, p := range w.pods() {
		if p.Spec.NodeName != "" || p.DeletionTimestamp != nil {
			continue
		}
		var all corev1.NodeList
		w.must(w.server.List(w.t.Context(), &all))
		for _, n := range all.Items {
			if n.Status.Conditions[0].Status != corev1.ConditionTrue || len(n.Spec.Taints) > 0 {
				continue
			}
			p.Spec.NodeName = n.Name
			p.Finalizers = append(p.Finalizers, finalizerKubelet)
			w.must(w.server.Update(w.t.Context(), &p))
			break
		}
	}
}

// watchNodes is what Kubernetes says of nodes whose kubelets are not heard.
func (w *world) watchNodes() {
	for name, m := range w.nodes {
		if !m.dead && !m.noKubelet {
			m.renewed = w.now
		}
		silent := w.now.Sub(m.renewed) > 50*time.Second
		if silent == m.silent {
			continue
		}
		m.silent = silent
		n, err := observe.Get(w.t.Context(), w.server, types.NamespacedName{Name: name}, new(corev1.Node))
		w.must(err)
		if n == nil {
			continue
		}
		c := &n.Status.Conditions[0]
		c.Status, c.LastTransitionTime = corev1.ConditionTrue, metav1.NewTime(w.now)
		if silent {
			c.Status = corev1.ConditionUnknown
		}
		w.must(w.server.Status().Update(w.t.Context(), n))
	}
}

// live is the API server as controllers read it; it has the Leases of nodes.
type live struct {
	client.Reader
	w *world
}

func (l live) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	lease, is := o.(*coordinationv1.Lease)
	if !is {
		return l.Reader.Get(ctx, key, o, opts...)
	}
	m := l.w.nodes[key.Name]
	if m == nil || key.Namespace != corev1.NamespaceNodeLease {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, key.Name)
	}
	renewed := metav1.NewMicroTime(m.renewed.Add(-m.behind))
	lease.Spec.RenewTime = &renewed
	return nil
}

// turn is the kubelet's: it runs the pods that are bound to its node, and ends those that are
// being deleted or are gone.
func (m *machine) turn() {
	if m.dead || m.noKubelet {
		return
	}
	there := make(map[types.UID]bool)
	for _, p := range m.w.pods() {
		if p.Spec.NodeName == m.name {
			there[p.UID] = true
			m.sync(&p)
		}
	}
	for uid, g := range m.vms {
		if !there[uid] {
			g.stop(nodev1.EndReason_END_REASON_SHUTDOWN)
		}
	}
}

// sync brings one pod of the node further.
func (m *machine) sync(p *corev1.Pod) {
	g := m.vms[p.UID]
	switch {
	case g == nil && p.DeletionTimestamp != nil: // it doesn't say whether the container ever ran
		m.say(p, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}})
		m.w.unhold(p)
		return
	case g == nil && m.promised[p.UID]:
		m.vms[p.UID] = &fakeGuest{vm: scene.VM, code: 1, state: nodev1.State_STATE_CRASHED}
		return
	case g == nil:
		m.vms[p.UID] = m.start(p)
		m.say(p, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(m.w.now)}})
		return
	case g.reads > 0 && p.DeletionTimestamp == nil:
		m.read(p, g)
		return
	case g.runs && p.DeletionTimestamp != nil && !g.stays && g.state != nodev1.State_STATE_SAVING:
		g.stop(nodev1.EndReason_END_REASON_SHUTDOWN)
	case g.runs && !g.unseen:
		return
	}
	end := &corev1.ContainerStateTerminated{ExitCode: g.code, Message: g.message, ContainerID: scene.Container, FinishedAt: metav1.NewTime(m.w.now)}
	if g.unseen {
		end = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}
	}
	m.say(p, corev1.ContainerState{Terminated: end})
	if p.DeletionTimestamp != nil {
		m.w.unhold(p)
	}
}

// start is the guest of a pod, which waits for its image if that is to be attached.
func (m *machine) start(p *corev1.Pod) *fakeGuest {
	vmi := m.w.instance()
	if vmi != nil && view.UIDOf(p.Labels) == vmi.UID && convert.AttachedImage(vmi) != nil {
		return &fakeGuest{vm: scene.VM, reads: readingTurns}
	}
	return &fakeGuest{vm: scene.VM, runs: true, state: nodev1.State_STATE_RUNNING}
}

// read is a turn of a shim that reads the image that its guest goes on from.
func (m *machine) read(p *corev1.Pod, g *fakeGuest) {
	switch attached := m.w.attaches(p.UID, m.name); {
	case m.noAgent:
	case attached:
		g.reads--
	case g.reads < readingTurns && m.w.careful:
		m.w.t.Fatalf("the image is taken away while it is read")
	}
	if g.reads == 0 {
		g.runs, g.state = true, nodev1.State_STATE_RUNNING
	}
}

// say writes the pod's status, as the kubelet does.
func (m *machine) say(p *corev1.Pod, state corev1.ContainerState) {
	ready := corev1.ConditionFalse
	p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = corev1.PodRunning, "10.1.0.7", []corev1.PodIP{{IP: "10.1.0.7"}, {IP: "fd00::7"}}
	switch {
	case state.Running != nil:
		ready = corev1.ConditionTrue
	case state.Terminated.ExitCode == 0:
		p.Status.Phase = corev1.PodSucceeded
	default:
		p.Status.Phase = corev1.PodFailed
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: ready}}
	c := corev1.ContainerStatus{Name: contract.ContainerCompute, State: state}
	if state.Running != nil {
		c.ContainerID = scene.Container
	} else {
		c.ContainerID = state.Terminated.ContainerID
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{c}
	m.w.must(m.w.server.Status().Update(m.w.t.Context(), p))
}

func (g *fakeGuest) stop(why nodev1.EndReason) {
	if !g.runs {
		return
	}
	g.runs, g.end, g.state = false, why, nodev1.State_STATE_STOPPED
	if why == nodev1.EndReason_END_REASON_PANICKED {
		g.code, g.message, g.state = 1, "the guest panicked", nodev1.State_STATE_CRASHED
	}
}

// guest is the one that runs.
func (w *world) guest() *fakeGuest {
	for _, m := range w.nodes {
		for _, g := range m.vms {
			if g.runs {
				return g
			}
		}
	}
	w.t.Fatal("no guest runs")
	return nil
}

// fail ends a node at once: its kubelet and agent are gone, and its guests, too, if powerOff.
func (w *world) fail(name string, powerOff bool) {
	m := w.nodes[name]
	m.dead, w.tick = true, 10*time.Second
	for _, g := range m.vms {
		if powerOff {
			g.runs = false
		}
	}
}

// taint says that a node is out of service.
func (w *world) taint(name string) { w.taintWith(name, corev1.TaintNodeOutOfService) }

func (w *world) taintWith(name, key string) {
	n, err := observe.Get(w.t.Context(), w.server, types.NamespacedName{Name: name}, new(corev1.Node))
	w.must(err)
	n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoExecute}}
	w.must(w.server.Update(w.t.Context(), n))
}

// agents are those of the nodes. They refuse what real ones refuse.
type agents struct{ w *world }

func (a agents) Report(node string, pod types.UID) nodes.Report {
	m := a.w.nodes[node]
	listened := slices.ContainsFunc(a.w.pods(), func(p corev1.Pod) bool { return p.Spec.NodeName == node })
	switch {
	case m == nil:
		return nodes.Report{}
	case m.dead || m.noAgent || !listened:
		return nodes.Report{Silence: a.w.now.Sub(m.heardAt)}
	}
	g := m.vms[pod]
	if g == nil || g.reads > 0 {
		return nodes.Report{Current: true}
	}
	return nodes.Report{Current: true, VM: &nodev1.VirtualMachine{Status: &nodev1.VirtualMachineStatus{
		State: g.state, EndReason: g.end, Hypervisor: "kvm", Vmm: &nodev1.Vmm{Name: "qemu", Version: "10.0.2"}, Image: g.reference(),
		EffectiveSpec: &specv1.VirtualMachineSpec{MachineType: "pc-q35-10.0", StopGracePeriod: a.w.ownGrace, Networks: []*specv1.NetworkInterface{
			{Name: "default", Mac: "02:00:00:00:00:01", Backend: &specv1.NetworkInterface_User{User: &specv1.UserNetwork{Cidr: "10.0.2.0/24"}}}}},
	}}}
}

// Nodes are those whose agents are there.
func (a agents) Nodes() (names []string) {
	for name, m := range a.w.nodes {
		if !m.dead && !m.noAgent {
			names = append(names, name)
		}
	}
	return names
}

func (a agents) ConfirmEnded(_ context.Context, node, machine string, pod types.UID) error {
	m := a.w.nodes[node]
	if m == nil || m.dead || m.noAgent {
		return status.Error(codes.Unavailable, "no agent")
	}
	if g := m.vms[pod]; g != nil && g.runs {
		return status.Error(codes.FailedPrecondition, "it runs")
	}
	if machine != "" && machine != machineid.Of(m.hardware) {
		return errors.New("another machine")
	}
	a.w.promising.Lock()
	defer a.w.promising.Unlock()
	m.promised[pod] = true
	return nil
}

func (a agents) Client(node string, _ types.UID) (nodev1.NodeServiceClient, error) {
	m := a.w.nodes[node]
	if m == nil || m.dead || m.noAgent {
		return nil, errors.New("no agent")
	}
	return killer{m: m}, nil
}

type killer struct {
	nodev1.NodeServiceClient
	m *machine
}

func (k killer) KillVM(ctx context.Context, r *nodev1.KillVMRequest, _ ...grpc.CallOption) (*nodev1.KillVMResponse, error) {
	_, k.m.w.killBounded = ctx.Deadline()
	for _, p := range k.m.w.pods() {
		if g := k.m.vms[p.UID]; g != nil && r.Name == scene.Namespace+"/"+p.Name {
			g.stop(nodev1.EndReason_END_REASON_KILLED)
			return &nodev1.KillVMResponse{}, nil
		}
	}
	return nil, status.Error(codes.NotFound, "no such VM")
}

func (k killer) PauseVM(_ context.Context, r *nodev1.PauseVMRequest, _ ...grpc.CallOption) (*nodev1.PauseVMResponse, error) {
	return &nodev1.PauseVMResponse{}, k.turnTo(r.Name, nodev1.State_STATE_PAUSED)
}

func (k killer) ResumeVM(_ context.Context, r *nodev1.ResumeVMRequest, _ ...grpc.CallOption) (*nodev1.ResumeVMResponse, error) {
	return &nodev1.ResumeVMResponse{}, k.turnTo(r.Name, nodev1.State_STATE_RUNNING)
}

func (k killer) turnTo(name string, state nodev1.State) error {
	for _, p := range k.m.w.pods() {
		if g := k.m.vms[p.UID]; g != nil && g.runs && name == scene.Namespace+"/"+p.Name {
			g.state = state
			return nil
		}
	}
	return status.Error(codes.NotFound, "no such VM")
}

// StopVM answers when the guest has ended, which nobody waits for.
func (k killer) StopVM(ctx context.Context, r *nodev1.StopVMRequest, _ ...grpc.CallOption) (*nodev1.StopVMResponse, error) {
	_, k.m.w.killBounded = ctx.Deadline()
	for _, p := range k.m.w.pods() {
		if g := k.m.vms[p.UID]; g != nil && r.Name == scene.Namespace+"/"+p.Name {
			k.m.w.hurried = append(k.m.w.hurried, r.GetGracePeriodMs())
			g.stop(nodev1.EndReason_END_REASON_GRACE_PERIOD_OVER)
			return nil, status.Error(codes.DeadlineExceeded, "context deadline exceeded")
		}
	}
	return nil, status.Error(codes.NotFound, "no such VM")
}

// reconcile runs a controller once; it may be killed on the way.
func (w *world) reconcile(r *Reconciler) (result reconcile.Result) {
	defer func() {
		why := recover()
		if why != nil && why != errKilled {
			panic(why)
		}
		if why == errKilled {
			w.loseCalls(w.process)
		}
	}()
	if w.refresh != nil {
		w.refresh()
	}
	result, err := r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: vmKey})
	if err != nil {
		w.errors = append(w.errors, err)
		if strings.Contains(err.Error(), "settled") {
			w.t.Fatal(err)
		}
	}
	return result
}

// until turns the world until something holds.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	for range 400 {
		if holds() {
			return
		}
		w.turn()
		w.reconcile(w.controller())
	}
	w.t.Fatalf("never: %s; the instance: %+v; pods: %+v; writes %v, errors %v", what, w.instance(), w.pods(), w.writes, w.errors)
}

func (w *world) in(phase kubevirtv1.Phase) func() bool {
	return func() bool { return w.phase() == phase }
}

// within turns the world until something holds, or some time has passed. The controller looks only
// when it asked to, as nothing else tells it of anything.
func (w *world) within(limit time.Duration, holds func() bool) bool {
	since, next := w.now, w.now
	for !holds() && w.now.Sub(since) < limit {
		w.turn()
		if !w.now.Before(next) {
			after := w.reconcile(w.controller()).RequeueAfter
			if after == 0 {
				after = limit
			}
			next = w.now.Add(after)
		}
	}
	return holds()
}

// removePods removes the VM's pods from the API server, with all their finalizers. Their kubelets
// are away.
func (w *world) removePods() {
	for _, m := range w.nodes {
		m.noKubelet = true
	}
	for _, p := range w.pods() {
		p.Finalizers = nil
		w.must(w.server.Update(w.t.Context(), &p))
		w.must(client.IgnoreNotFound(w.server.Delete(w.t.Context(), &p)))
	}
}

// during turns the world some times.
func (w *world) during(turns int) {
	for range turns {
		w.turn()
		w.reconcile(w.controller())
	}
}
