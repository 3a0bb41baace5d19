package hibernation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// world is a cluster with one VM, web, which runs, and a controller that takes one of its steps each
// time somebody who watches the VM looks at it.
type world struct {
	client.WithWatch
	steps    []step
	watching bool
	out      strings.Builder
	started  int
	evicted  []string
	// refused is the answer to evictions.
	refused error
}

type step func(*kubevirtv1.VirtualMachine)

func newWorld(t *testing.T, change func(*kubevirtv1.VirtualMachine, *kubevirtv1.VirtualMachineInstance)) (*world, *Commands) {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, errors.Join(corev1.AddToScheme(scheme), policyv1.AddToScheme(scheme), kubevirtv1.AddToScheme(scheme)))
	vm := &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "vm"}}
	vm.Spec.RunStrategy = new(kubevirtv1.RunStrategyAlways)
	vm.Status.PrintableStatus = kubevirtv1.StatusRunning
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "vmi"}}
	vmi.Status.Phase, vmi.Status.NodeName = kubevirtv1.PhaseRunning, "n1"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "virt-launcher-web-x", Labels: map[string]string{
		contract.LabelCreatedBy: "vmi", contract.LabelApp: contract.LabelAppLauncher,
	}}, Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	if change != nil {
		change(vm, vmi)
	}
	objects := []client.Object{vm, pod}
	if vmi.Name != "" {
		objects = append(objects, vmi)
	}
	w := &world{}
	w.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(vm, vmi).
		WithInterceptorFuncs(interceptor.Funcs{
			Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
				w.watching = true
				changes, err := c.Watch(ctx, list, options...)
				return watching{changes, w}, err
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				if _, is := o.(*kubevirtv1.VirtualMachine); is && w.watching && len(w.steps) > 0 {
					next := w.steps[0]
					w.steps, w.watching = w.steps[1:], false
					err := w.change(ctx, next)
					w.watching = true
					if err != nil {
						return err
					}
				}
				return c.Get(ctx, key, o, options...)
			},
			SubResourceCreate: func(_ context.Context, _ client.Client, sub string, o, _ client.Object, options ...client.SubResourceCreateOption) error {
				word := sub + " " + o.GetName()
				if len(options) > 0 {
					word += " dry"
				}
				w.evicted = append(w.evicted, word)
				return w.refused
			},
		}).Build()
	return w, &Commands{Client: w, Namespace: "shop", Out: &w.out, Start: func(ctx context.Context, namespace, name string) error {
		w.started++
		return w.change(ctx, func(vm *kubevirtv1.VirtualMachine) { vm.Spec.RunStrategy = new(kubevirtv1.RunStrategyAlways) })
	}}
}

// change writes the VM and its status.
func (w *world) change(ctx context.Context, to step) error {
	vm := &kubevirtv1.VirtualMachine{}
	if err := w.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "web"}, vm); err != nil {
		return err
	}
	to(vm)
	status := vm.Status.DeepCopy()
	if err := w.Update(ctx, vm); err != nil {
		return err
	}
	vm.Status = *status
	return w.Status().Update(ctx, vm)
}

// watching is a watch that says when it ends.
type watching struct {
	watch.Interface
	w *world
}

func (w watching) Stop() {
	w.w.watching = false
	w.Interface.Stop()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) vm(t *testing.T) *kubevirtv1.VirtualMachine {
	t.Helper()
	vm := &kubevirtv1.VirtualMachine{}
	must(t, w.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, vm))
	return vm
}

// words are what became of the VM.
func (w *world) words(t *testing.T) string {
	vm := w.vm(t)
	text := string(kubevirtv1.RunStrategyOf(&vm.Spec))
	if note := vm.Annotations[contract.AnnotationResumeStrategy]; note != "" {
		text += " (" + note + ")"
	}
	if s := vm.Spec.StartStrategy; s != nil {
		text += " " + string(*s)
	}
	return text + strings.Repeat(" started", w.started)
}

func phase(h string) step {
	return func(vm *kubevirtv1.VirtualMachine) {
		vm.Status.PrintableStatus = kubevirtv1.StatusHibernating
		vm.Status.HibernationStatus = &kubevirtv1.HibernationStatus{Phase: h, Reason: "NoSpace", Message: "claim images is full"}
		if h == kubevirtv1.HibernationCompleted {
			vm.Status.PrintableStatus = kubevirtv1.StatusHibernated
			vm.Status.HibernationStatus.Image = &kubevirtv1.SavedImage{ClaimName: "images", SizeBytes: 5<<20 + 1}
		}
	}
}

func resumed(vm *kubevirtv1.VirtualMachine) {
	vm.Status.HibernationStatus, vm.Status.ResumeStatus = nil, nil
	vm.Status.PrintableStatus = kubevirtv1.StatusRunning
}

func resumeFails(vm *kubevirtv1.VirtualMachine) {
	vm.Status.ResumeStatus = &kubevirtv1.ResumeStatus{Phase: kubevirtv1.ResumeFailed, Reason: "DiskChanged", Message: "disk root"}
}

// nothing: the controller has not looked at it.
func nothing(*kubevirtv1.VirtualMachine) {}

// off: the VM does not run.
func off(_ *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
	*vmi = kubevirtv1.VirtualMachineInstance{}
}

func runsBy(s kubevirtv1.RunStrategy) func(*kubevirtv1.VirtualMachine, *kubevirtv1.VirtualMachineInstance) {
	return func(vm *kubevirtv1.VirtualMachine, _ *kubevirtv1.VirtualMachineInstance) { vm.Spec.RunStrategy = &s }
}

// asleep is a hibernated VM with that strategy now.
func asleep(s kubevirtv1.RunStrategy) func(*kubevirtv1.VirtualMachine, *kubevirtv1.VirtualMachineInstance) {
	return func(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
		runsBy(s)(vm, vmi)
		phase(kubevirtv1.HibernationCompleted)(vm)
		off(vm, vmi)
	}
}

// TestAsked: what each command writes, and when it refuses.
func TestAsked(t *testing.T) {
	const hibernate = kubevirtv1.RunStrategyHibernate
	for name, c := range map[string]struct {
		is    func(*kubevirtv1.VirtualMachine, *kubevirtv1.VirtualMachineInstance)
		do    func(ctx context.Context, c *Commands) error
		after string
		say   string
		fails string
	}{
		"hibernate":                 {nil, hibernateIt, "Hibernate (Always)", "VM web is being hibernated: kubectl vmlet why web -n shop", ""},
		"hibernate manual":          {runsBy("Manual"), hibernateIt, "Hibernate (Manual)", "being hibernated", ""},
		"hibernate while it shuts":  {runsBy("Halted"), hibernateIt, "Hibernate", "being hibernated", ""},
		"hibernate by running":      {byRunning, hibernateIt, "Hibernate (Always)", "being hibernated", ""},
		"hibernate twice":           {runsBy(hibernate), hibernateIt, "Hibernate", "being hibernated", ""},
		"hibernate hibernated":      {asleep(hibernate), hibernateIt, "Hibernate", "VM web is hibernated.", ""},
		"hibernate stopped":         {off, hibernateIt, "Always", "", "does not run"},
		"resume":                    {asleep(hibernate), resumeIt, "Always started", "being resumed", ""},
		"resume manual":             {asleep("Manual"), resumeIt, "Always started", "being resumed", ""},
		"resume what is resumed":    {asleep("Always"), resumeIt, "Always", "without being asked", ""},
		"resume what runs":          {nil, resumeIt, "Always", "", "VM web is not hibernated, but Running"},
		"resume while it is saved":  {runsBy(hibernate), resumeIt, "Always started", "being resumed", ""},
		"resume by booting":         {asleep(hibernate), bootIt, "Always Boot started", "spec.startStrategy is Boot from now on", ""},
		"move stopped":              {off, moveIt, "Always", "", "nothing to be moved"},
		"move hibernating":          {runsBy(hibernate), moveIt, "Hibernate", "", "resume web -n shop has it go on"},
		"hibernate one that is not": {nil, func(ctx context.Context, c *Commands) error { return c.Hibernate(ctx, "other", false) }, "Always", "", "no VirtualMachine other in namespace shop"},
	} {
		w, commands := newWorld(t, c.is)
		expect(t, name, w, c.do(t.Context(), commands), c.after, c.say, c.fails)
	}
}

func hibernateIt(ctx context.Context, c *Commands) error { return c.Hibernate(ctx, "web", false) }
func resumeIt(ctx context.Context, c *Commands) error    { return c.Resume(ctx, "web", false, false) }
func bootIt(ctx context.Context, c *Commands) error      { return c.Resume(ctx, "web", true, false) }
func moveIt(ctx context.Context, c *Commands) error      { return c.Move(ctx, "web", false) }

func byRunning(vm *kubevirtv1.VirtualMachine, _ *kubevirtv1.VirtualMachineInstance) {
	vm.Spec.RunStrategy = nil
	//lint:ignore SA1019 users' manifests still have it
	vm.Spec.Running = new(true)
}

func expect(t *testing.T, name string, w *world, err error, after, say, fails string) {
	t.Helper()
	if got := fmt.Sprint(err); (err != nil) != (fails != "") || !strings.Contains(got, fails) && err != nil {
		t.Errorf("%s: error is %v, want %q", name, err, fails)
	}
	if got := w.words(t); got != after {
		t.Errorf("%s: afterwards %q, want %q", name, got, after)
	}
	if !strings.Contains(w.out.String(), say) {
		t.Errorf("%s: it says %q, want %q", name, &w.out, say)
	}
}

// TestWaits: what ends the waiting, and with what words. The steps are the controller's.
func TestWaits(t *testing.T) {
	const hibernate = kubevirtv1.RunStrategyHibernate
	hibernateIt := func(ctx context.Context, c *Commands) error { return c.Hibernate(ctx, "web", true) }
	resumeIt := func(ctx context.Context, c *Commands) error { return c.Resume(ctx, "web", false, true) }
	bootIt := func(ctx context.Context, c *Commands) error { return c.Resume(ctx, "web", true, true) }
	restores := func(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
		asleep(hibernate)(vm, vmi)
		vm.Spec.StartStrategy = new(kubevirtv1.StartRestore)
	}
	again := func(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
		asleep("Always")(vm, vmi)
		resumeFails(vm)
	}
	unseen := func(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
		runsBy(hibernate)(vm, vmi)
		phase(kubevirtv1.HibernationFailed)(vm)
		vm.Generation = 2
	}
	look := func(vm *kubevirtv1.VirtualMachine) { vm.Status.DesiredGeneration = 2 }
	stopped := func(vm *kubevirtv1.VirtualMachine) { vm.Status.PrintableStatus = kubevirtv1.StatusStopped }
	other := func(vm *kubevirtv1.VirtualMachine) { vm.Spec.RunStrategy = new(kubevirtv1.RunStrategyHalted) }
	for name, c := range map[string]struct {
		is    func(*kubevirtv1.VirtualMachine, *kubevirtv1.VirtualMachineInstance)
		do    func(ctx context.Context, c *Commands) error
		steps []step
		after string
		say   string
		fails string
	}{
		"saved":                 {runsBy(hibernate), hibernateIt, []step{phase("Initial"), phase("InProgress"), phase("Completed")}, "Hibernate", "VM web is hibernated: 6 MiB in claim images.", ""},
		"not saved":             {runsBy(hibernate), hibernateIt, []step{phase("InProgress"), phase("Failed")}, "Hibernate", "", "its guest goes on: NoSpace: claim images is full; it is tried again"},
		"an earlier failure":    {unseen, hibernateIt, []step{nothing, func(vm *kubevirtv1.VirtualMachine) { look(vm); phase("Completed")(vm) }}, "Hibernate", "is hibernated", ""},
		"it shut down":          {runsBy(hibernate), hibernateIt, []step{stopped}, "Hibernate", "", "shut down by itself"},
		"somebody cancels it":   {runsBy(hibernate), hibernateIt, []step{other}, "Halted", "", "somebody else has set runStrategy of VM web to Halted"},
		"resumed":               {asleep(hibernate), resumeIt, []step{resumed}, "Always started", "VM web runs.", ""},
		"not resumed":           {asleep(hibernate), resumeIt, []step{resumeFails}, "Always started", "", "what was saved is kept: DiskChanged: disk root"},
		"resumed at last":       {again, resumeIt, []step{nothing, resumed}, "Always started", "VM web runs.", ""},
		"not resumed again":     {again, resumeIt, []step{func(vm *kubevirtv1.VirtualMachine) { vm.Status.ResumeStatus.Failures++ }}, "Always started", "", "what was saved is kept"},
		"booted":                {asleep(hibernate), bootIt, []step{resumed}, "Always started", "VM web runs.", ""},
		"booted, and as before": {restores, bootIt, []step{resumed}, "Always Restore started", "", ""},
	} {
		w, commands := newWorld(t, c.is)
		w.steps = c.steps
		expect(t, name, w, c.do(t.Context(), commands), c.after, c.say, c.fails)
	}
}

// TestInterrupted: whoever stops to wait knows what goes on.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w, commands := newWorld(t, runsBy(kubevirtv1.RunStrategyHibernate))
	w.steps = []step{phase("InProgress"), func(*kubevirtv1.VirtualMachine) { cancel() }}
	err := commands.Hibernate(ctx, "web", true)
	expect(t, "interrupted", w, err, "Hibernate", "VM web: Hibernating, InProgress", "interrupted: VM web is still being hibernated")
}

// TestMove: a VM that is evacuated by an eviction is asked for one, and only where that ends no
// guest; any other one is hibernated and resumed, and goes on as before where it can't be saved.
func TestMove(t *testing.T) {
	evacuates := func(_ *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Spec.EvictionStrategy = new(kubevirtv1.EvictionHibernate)
	}
	asked := apierrors.NewTooManyRequests("Eviction triggered evacuation of VMI shop/web", 0)
	budget := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	for name, c := range map[string]struct {
		is      func(*kubevirtv1.VirtualMachine, *kubevirtv1.VirtualMachineInstance)
		refused error
		steps   []step
		evicted string
		after   string
		say     string
		fails   string
	}{
		"by an eviction":   {evacuates, asked, nil, "eviction virt-launcher-web-x dry; eviction virt-launcher-web-x", "Always", "VM web leaves node n1.", ""},
		"it would be shut": {evacuates, nil, nil, "eviction virt-launcher-web-x dry", "Always", "", "an eviction of its pod would shut the guest down now"},
		"a budget":         {evacuates, budget, nil, "eviction virt-launcher-web-x dry", "Always", "", "disruption budget"},
		"by hibernating":   {nil, nil, []step{phase("InProgress"), phase("Completed")}, "", "Always (Always) started", "may come back to node n1", ""},
		"not saved":        {nil, nil, []step{phase("InProgress"), phase("Failed")}, "", "Always (Always) started", "", "claim images is full; its run strategy is as it was"},
	} {
		w, commands := newWorld(t, c.is)
		w.refused, w.steps = c.refused, c.steps
		expect(t, name, w, commands.Move(t.Context(), "web", false), c.after, c.say, c.fails)
		if got := strings.Join(w.evicted, "; "); got != c.evicted {
			t.Errorf("%s: asked for %q, want %q", name, got, c.evicted)
		}
	}
}

// TestMoveWaits: for an instance that is another one, and runs.
func TestMoveWaits(t *testing.T) {
	w, commands := newWorld(t, func(_ *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Spec.EvictionStrategy = new(kubevirtv1.EvictionHibernate)
	})
	w.refused = apierrors.NewTooManyRequests("Eviction triggered evacuation of VMI shop/web", 0)
	there := 0
	w.steps = []step{func(*kubevirtv1.VirtualMachine) { there++ }, phase("InProgress"), func(vm *kubevirtv1.VirtualMachine) {
		resumed(vm)
		old := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		must(t, w.Delete(t.Context(), old))
		next := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "next"}}
		must(t, w.Create(t.Context(), next))
		there++
	}}
	must(t, commands.Move(t.Context(), "web", true))
	if there != 2 {
		t.Errorf("it waited for %d of 2 steps", there)
	}
	if !strings.HasSuffix(w.out.String(), "VM web runs.\n") {
		t.Errorf("it says %q", &w.out)
	}
}
