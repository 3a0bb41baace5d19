package servertest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/go-logr/logr/testr"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/suites"
)

func TestMain(m *testing.M) { os.Exit(suites.StartsVMs(m)) }

// TestMachines takes VMs through their lives on one API server.
func TestMachines(t *testing.T) {
	w := start(t)
	t.Run("runs, restarts, stops and goes", w.life)
	t.Run("waits for its instancetype, and keeps it", w.types)
	t.Run("waits for its name", w.foreign)
	t.Run("leaves its instance to itself", w.orphan)
	t.Run("goes with its namespace", w.namespace)
}

// world is a cluster with the controller.
type world struct {
	ctx    context.Context
	client client.Client
}

func start(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	if err := cluster.Unfit(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := suites.Wait(t.Context(), t, 5*time.Minute) // all of it
	t.Cleanup(cancel)
	c, err := cluster.Start(ctx, cluster.Options{Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, args := range [][]string{
		{"apply", "--server-side", "-k", "../../../deploy/crd"},
		{"wait", "--for=condition=Established", "--timeout=2m", "crd", "--selector=app.kubernetes.io/part-of=vmlet"},
	} {
		if out, err := c.Kubectl(ctx, args...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return &world{ctx, run(ctx, t, c.Kubeconfig())}
}

// run starts the controller and the stand-in. They end with the test.
func run(ctx context.Context, t *testing.T, kubeconfig string) client.Client {
	t.Helper()
	log.SetLogger(testr.New(t))
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, kubevirtv1.AddToScheme(scheme))
	must(t, instancetypev1.AddToScheme(scheme))
	m, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: machine.Uncached()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &machine.Reconciler{
		Observer: &machine.Observer{
			Client: m.GetClient(), Live: m.GetAPIReader(), Defaults: func(*kubevirtv1.VirtualMachineInstance) {}, Now: time.Now,
		},
		Writer: &machine.Writer{Client: m.GetClient(), Live: m.GetAPIReader(), Events: m.GetEventRecorder("vmlet-controller")},
	}
	must(t, r.Setup(ctx, m, nil))
	must(t, ctrl.NewControllerManagedBy(m).Named("instances").For(&kubevirtv1.VirtualMachineInstance{}).Complete(&instances{m.GetClient()}))
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	live, err := client.New(config, client.Options{Scheme: scheme})
	must(t, err)
	return live
}

// instances stands in for the controller of instances: guests start at once, and end when
// their instance is deleted.
type instances struct{ client.Client }

func (i *instances) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	instance := &kubevirtv1.VirtualMachineInstance{}
	if err := i.Get(ctx, request.NamespacedName, instance); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	phase := instance.Status.Phase
	switch {
	case instance.DeletionTimestamp == nil:
		next := map[kubevirtv1.Phase]kubevirtv1.Phase{"": kubevirtv1.PhaseScheduling, kubevirtv1.PhaseScheduling: kubevirtv1.PhaseScheduled, kubevirtv1.PhaseScheduled: kubevirtv1.PhaseRunning}
		if next[phase] == "" {
			return reconcile.Result{}, nil
		}
		instance.Status.Phase = next[phase]
	case phase != kubevirtv1.PhaseSucceeded && phase != kubevirtv1.PhaseFailed:
		instance.Status.Phase = kubevirtv1.PhaseSucceeded
	default:
		kept := slices.DeleteFunc(slices.Clone(instance.Finalizers), func(f string) bool { return f == contract.FinalizerInstance })
		if len(kept) == len(instance.Finalizers) {
			return reconcile.Result{}, nil
		}
		instance.Finalizers = kept
		return i.again(i.Update(ctx, instance))
	}
	instance.Status.PhaseTransitionTimestamps = append(instance.Status.PhaseTransitionTimestamps,
		kubevirtv1.PhaseTransition{Phase: instance.Status.Phase, PhaseTransitionTimestamp: metav1.Now()})
	ready := kubevirtv1.Condition{Type: kubevirtv1.ConditionReady, Status: metav1.ConditionFalse, Reason: "GuestNotRunning", LastTransitionTime: metav1.Now()}
	if instance.Status.Phase == kubevirtv1.PhaseRunning {
		ready.Status, ready.Reason = metav1.ConditionTrue, ""
	}
	instance.Status.Conditions = []kubevirtv1.Condition{ready}
	return i.again(i.Status().Update(ctx, instance))
}

func (*instances) again(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: 10 * time.Millisecond}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

func (w *world) life(t *testing.T) {
	vm := newVM("default", "web")
	must(t, w.client.Create(w.ctx, vm))
	w.become(t, vm, kubevirtv1.StatusRunning)
	instance := w.instance(t, vm)
	if vm.Status.ObservedGeneration != vm.Generation || !vm.Status.Ready || !vm.Status.Created || vm.Status.RunStrategy != kubevirtv1.RunStrategyAlways {
		t.Errorf("generation %d, status %+v", vm.Generation, vm.Status)
	}
	if firmware := vm.Spec.Template.Spec.Domain.Firmware; firmware == nil || instance.Spec.Domain.Firmware.UUID != firmware.UUID {
		t.Errorf("firmware %+v, the instance's %+v", firmware, instance.Spec.Domain.Firmware)
	}

	was := instance.UID
	w.change(t, vm, func() { vm.Spec.Template.Spec.Hostname = "other" })
	w.until(t, vm, "RestartRequired", func() bool { return condition(vm, kubevirtv1.ConditionRestartRequired) != nil })
	vm.Status.StateChangeRequests = []kubevirtv1.StateChangeRequest{{Action: "Stop", UID: &was}, {Action: "Start"}}
	must(t, w.client.Status().Update(w.ctx, vm))
	w.until(t, vm, "a restart", func() bool {
		return vm.Status.PrintableStatus == kubevirtv1.StatusRunning && len(vm.Status.StateChangeRequests) == 0 && condition(vm, kubevirtv1.ConditionRestartRequired) == nil
	})
	if now := w.instance(t, vm); now.UID == was || now.Spec.Hostname != "other" {
		t.Errorf("the instance has UID %s and host name %q, before %s", now.UID, now.Spec.Hostname, was)
	}
	var revisions appsv1.ControllerRevisionList
	must(t, w.client.List(w.ctx, &revisions, client.InNamespace("default")))
	if len(revisions.Items) != 1 {
		t.Errorf("%d revisions, want the last alone", len(revisions.Items))
	}

	halted := kubevirtv1.RunStrategyHalted
	w.change(t, vm, func() { vm.Spec.RunStrategy = &halted })
	w.become(t, vm, kubevirtv1.StatusStopped)
	must(t, w.client.Delete(w.ctx, vm))
	w.gone(t, vm)
	w.gone(t, instance)
}

// types: a VM starts when its instancetype is made, and does not change with it.
func (w *world) types(t *testing.T) {
	vm := newVM("default", "sized")
	vm.Spec.Instancetype = &kubevirtv1.InstancetypeMatcher{Name: "small"}
	must(t, w.client.Create(w.ctx, vm))
	w.until(t, vm, "FailedFindInstancetype", func() bool {
		c := condition(vm, kubevirtv1.ConditionFailure)
		return c != nil && c.Reason == "FailedFindInstancetype"
	})
	size := &instancetypev1.VirtualMachineClusterInstancetype{ObjectMeta: metav1.ObjectMeta{Name: "small"}}
	size.Spec.CPU.Guest, size.Spec.Memory.Guest = 2, resource.MustParse("1Gi")
	must(t, w.client.Create(w.ctx, size))
	w.become(t, vm, kubevirtv1.StatusRunning)
	size.Spec.CPU.Guest = 3
	must(t, w.client.Update(w.ctx, size))
	was := w.instance(t, vm)
	vm.Status.StateChangeRequests = []kubevirtv1.StateChangeRequest{{Action: "Stop", UID: &was.UID}, {Action: "Start"}}
	must(t, w.client.Status().Update(w.ctx, vm))
	w.until(t, vm, "a restart", func() bool {
		return vm.Status.PrintableStatus == kubevirtv1.StatusRunning && len(vm.Status.StateChangeRequests) == 0
	})
	for _, instance := range []*kubevirtv1.VirtualMachineInstance{was, w.instance(t, vm)} {
		if cpu := instance.Spec.Domain.CPU; cpu == nil || cpu.Sockets != 2 {
			t.Errorf("the instance %s has CPU %+v, want the 2 sockets that the VM began with", instance.UID, cpu)
		}
	}
	if ref := vm.Status.InstancetypeRef; ref == nil || ref.ControllerRevisionRef == nil || vm.Spec.Template.Spec.Domain.CPU != nil {
		t.Errorf("the status names %+v, and the VM's CPU is %+v, want a revision and none", ref, vm.Spec.Template.Spec.Domain.CPU)
	}
	must(t, w.client.Delete(w.ctx, vm))
	w.gone(t, vm)
}

func (w *world) foreign(t *testing.T) {
	vm := newVM("default", "taken")
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owner"}}
	must(t, w.client.Create(w.ctx, owner))
	instance := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "taken"}, Spec: vm.Spec.Template.Spec}
	must(t, controllerutil.SetControllerReference(owner, instance, w.client.Scheme()))
	must(t, w.client.Create(w.ctx, instance))
	must(t, w.client.Create(w.ctx, vm))
	w.until(t, vm, "Failure", func() bool { return condition(vm, kubevirtv1.ConditionFailure) != nil })
	if c := condition(vm, kubevirtv1.ConditionFailure); c.Reason != "FailedCreate" {
		t.Errorf("%+v", c)
	}
	must(t, w.client.Delete(w.ctx, instance))
	w.become(t, vm, kubevirtv1.StatusRunning)
	if condition(vm, kubevirtv1.ConditionFailure) != nil {
		t.Error("the failure is left")
	}
	must(t, w.client.Delete(w.ctx, vm))
	w.gone(t, vm)
	w.gone(t, instance)
}

func (w *world) orphan(t *testing.T) {
	vm := newVM("default", "orphan")
	must(t, w.client.Create(w.ctx, vm))
	w.become(t, vm, kubevirtv1.StatusRunning)
	must(t, w.client.Delete(w.ctx, vm, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	w.gone(t, vm)
	instance := w.instance(t, vm)
	if instance.DeletionTimestamp != nil || len(instance.OwnerReferences) > 0 || instance.Status.Phase != kubevirtv1.PhaseRunning {
		t.Errorf("the instance is %s, deleted at %v, with owners %v", instance.Status.Phase, instance.DeletionTimestamp, instance.OwnerReferences)
	}
	must(t, w.client.Delete(w.ctx, instance))
	w.gone(t, instance)
}

func (w *world) namespace(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short-lived"}}
	must(t, w.client.Create(w.ctx, namespace))
	for i := range 5 {
		vm := newVM(namespace.Name, fmt.Sprintf("web-%d", i))
		must(t, w.client.Create(w.ctx, vm))
		w.become(t, vm, kubevirtv1.StatusRunning)
	}
	must(t, w.client.Delete(w.ctx, namespace))
	w.gone(t, namespace)
}

func newVM(namespace, name string) *kubevirtv1.VirtualMachine {
	always := kubevirtv1.RunStrategyAlways
	return &kubevirtv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       kubevirtv1.VirtualMachineSpec{RunStrategy: &always, Template: &kubevirtv1.VirtualMachineInstanceTemplateSpec{}},
	}
}

func condition(vm *kubevirtv1.VirtualMachine, kind string) *kubevirtv1.Condition {
	i := slices.IndexFunc(vm.Status.Conditions, func(c kubevirtv1.Condition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &vm.Status.Conditions[i]
}

// change updates a VM, which the controller may be changing.
func (w *world) change(t *testing.T, vm *kubevirtv1.VirtualMachine, how func()) {
	t.Helper()
	for {
		must(t, w.client.Get(w.ctx, client.ObjectKeyFromObject(vm), vm))
		how()
		err := w.client.Update(w.ctx, vm)
		if !apierrors.IsConflict(err) {
			must(t, err)
			return
		}
	}
}

func (w *world) become(t *testing.T, vm *kubevirtv1.VirtualMachine, status kubevirtv1.PrintableStatus) {
	t.Helper()
	w.until(t, vm, string(status), func() bool { return vm.Status.PrintableStatus == status })
}

// until waits for a VM to be as it should.
func (w *world) until(t *testing.T, vm *kubevirtv1.VirtualMachine, what string, is func() bool) {
	t.Helper()
	for {
		if err := w.client.Get(w.ctx, client.ObjectKeyFromObject(vm), vm); err != nil {
			t.Fatalf("no %s: %v", what, err)
		}
		if is() {
			return
		}
		w.pause(t, fmt.Sprintf("no %s: %+v", what, vm.Status))
	}
}

func (w *world) gone(t *testing.T, object client.Object) {
	t.Helper()
	for {
		err := w.client.Get(w.ctx, client.ObjectKeyFromObject(object), object)
		if apierrors.IsNotFound(err) {
			return
		}
		must(t, err)
		w.pause(t, fmt.Sprintf("%s is still there, with %v", object.GetName(), object.GetFinalizers()))
	}
}

// pause lets some time pass between two looks, unless there is none left.
func (w *world) pause(t *testing.T, otherwise string) {
	t.Helper()
	select {
	case <-w.ctx.Done():
		t.Fatalf("%s: %v", otherwise, context.Cause(w.ctx))
	case <-time.After(50 * time.Millisecond):
	}
}

func (w *world) instance(t *testing.T, vm *kubevirtv1.VirtualMachine) *kubevirtv1.VirtualMachineInstance {
	t.Helper()
	instance := &kubevirtv1.VirtualMachineInstance{}
	must(t, w.client.Get(w.ctx, client.ObjectKeyFromObject(vm), instance))
	return instance
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
