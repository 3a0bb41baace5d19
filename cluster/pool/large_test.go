package pool

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
)

// memory answers as a controller's cache does, without copies, and counts writes, which change nothing: each
// reconcile of a pool is the same.
type memory struct {
	client.Client
	pool      *poolv1.VirtualMachinePool
	vms       []kubevirtv1.VirtualMachine
	instances []kubevirtv1.VirtualMachineInstance
	revisions []appsv1.ControllerRevision
	writes    int
}

func (m *memory) Get(_ context.Context, name client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *poolv1.VirtualMachinePool:
		m.pool.DeepCopyInto(o)
		return nil
	case *corev1.Node:
		o.Name = name.Name
		return nil
	case *kubevirtv1.VirtualMachineInstance:
		for i := range m.instances {
			if m.instances[i].Name == name.Name {
				m.instances[i].DeepCopyInto(o)
				return nil
			}
		}
	}
	return apierrors.NewNotFound(corev1.Resource("x"), name.Name)
}

func (m *memory) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *kubevirtv1.VirtualMachineList:
		l.Items = m.vms
	case *kubevirtv1.VirtualMachineInstanceList:
		l.Items = m.instances
	case *appsv1.ControllerRevisionList:
		l.Items = m.revisions
	case *metav1.PartialObjectMetadataList:
		for i := range m.vms {
			l.Items = append(l.Items, metav1.PartialObjectMetadata{ObjectMeta: m.vms[i].ObjectMeta})
		}
	}
	return nil
}

func (m *memory) Create(context.Context, client.Object, ...client.CreateOption) error {
	m.writes++
	return nil
}

func (m *memory) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	m.writes++
	return nil
}

// Patch makes the patch, as a client does before it sends it.
func (m *memory) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	m.writes++
	_, err := p.Data(o)
	return err
}

func (m *memory) Status() client.SubResourceWriter { return status{m: m} }

type status struct {
	client.SubResourceWriter
	m *memory
}

func (s status) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.m.Patch(ctx, o, p)
}

// large is a reconciler of a pool of n members that run, each on a node, with what it is asked.
func large(tb testing.TB, n int, spec string, change func(*kubevirtv1.VirtualMachine)) (*memory, func() error) {
	tb.Helper()
	var members []func(*kubevirtv1.VirtualMachine)
	for range n {
		members = append(members, change)
	}
	if change == nil {
		members = nil
	}
	o := now(tb, spec, members...)
	m := &memory{pool: o.pool}
	object, err := o.revisions[0].object(o.pool)
	if err != nil {
		tb.Fatal(err)
	}
	m.revisions = []appsv1.ControllerRevision{*object}
	for _, member := range o.members {
		m.vms = append(m.vms, *member.vm)
		vmi := kubevirtv1.VirtualMachineInstance{}
		vmi.Name, vmi.OwnerReferences, vmi.Status.NodeName = member.vm.Name, []metav1.OwnerReference{ownerVM(member.vm)}, fmt.Sprint("node-", member.index%50)
		m.instances = append(m.instances, vmi)
	}
	r := &Reconciler{Client: m, Live: m, Events: &events.FakeRecorder{}, Burst: 1000, Now: func() time.Time { return start }}
	reconcile := func() error {
		_, err := r.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "space", Name: "web"}})
		return err
	}
	if s := statusOf(decide(o)); s != nil {
		m.pool.Status = *s // so that it is not written
	}
	return m, reconcile
}

// works are what pools of many members are asked, with the writes that it takes.
var works = map[string]struct {
	spec   string
	change func(*kubevirtv1.VirtualMachine)
	writes func(n int) int
}{
	"rest":      {"{replicas: %d, disruptionBudget: None}", up, func(int) int { return 0 }},
	"create":    {"{replicas: %d, disruptionBudget: None}", nil, func(n int) int { return n }},
	"update":    {"{replicas: %d, disruptionBudget: None}", old, func(n int) int { return n / 4 }},
	"restart":   {"{replicas: %d, disruptionBudget: None}", stale, func(n int) int { return n / 4 }},
	"scale in":  {"{replicas: 0, disruptionBudget: None, nameGeneration: {startOrdinal: %d}}", up, func(n int) int { return n }},
	"hibernate": {"{replicas: 0, disruptionBudget: None, nameGeneration: {startOrdinal: %d}, scaleInStrategy: {proactive: {statePreservation: Online}}}", up, func(n int) int { return n }},
}

// TestLargePools: a reconcile of a pool of twice as many members takes about twice as much, and one write for each
// member that is to change.
func TestLargePools(t *testing.T) {
	for name, w := range works {
		took := make(map[int]float64)
		for _, n := range []int{500, 1000} {
			m, reconcile := large(t, n, fmt.Sprintf(w.spec, n), w.change)
			if err := reconcile(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if m.writes != w.writes(n) {
				t.Errorf("%s: %d members: %d writes, want %d", name, n, m.writes, w.writes(n))
			}
			took[n] = testing.AllocsPerRun(1, func() { _ = reconcile() })
		}
		if ratio := took[1000] / took[500]; ratio > 2.6 {
			t.Errorf("%s: 1000 members take %.1f times the allocations of 500: %.0f and %.0f", name, ratio, took[1000], took[500])
		}
	}
}

// BenchmarkReconcile: one reconcile of a pool of 100 and of 500 members.
func BenchmarkReconcile(b *testing.B) {
	for name, w := range works {
		for _, n := range []int{100, 500} {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				m, reconcile := large(b, n, fmt.Sprintf(w.spec, n), w.change)
				before := processor(b)
				for b.Loop() {
					m.writes = 0
					if err := reconcile(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(m.writes), "writes/op")
				b.ReportMetric(float64((processor(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

// processor is the time that this process has had of processors: others may have them, too.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
