package virtualmachines_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/test/suites"
)

// chaosPatience bounds what may wait for a node that is back, an image that is copied and a VM that is
// started again after several failures, which takes five minutes at most.
const chaosPatience = 10 * time.Minute

// chaosVMs are the names of those that there are, and the last that of the one under cloud-hypervisor.
var chaosVMs = []string{"chaos-a", "chaos-b", chaosCloud}

const chaosCloud = "chaos-cloud"

// chaos are VMs whose clients and nodes do as they like, and who watches them.
type chaos struct {
	*twoNodes
	vms []*witnessed
	// fault is the round's.
	fault string
}

// testChaos: whatever ends, is cut off or stands still while clients start, save, move and delete VMs, no
// disk has two writers, and nothing that was acknowledged is lost: what a guest has written, and the
// memory of one that was hibernated.
func (w *twoNodes) testChaos(t *testing.T) {
	rounds := chaosRounds(t)
	must(t, w.second.Uncordon(w.ctx))
	c := &chaos{twoNodes: w}
	for _, name := range chaosVMs {
		if name == chaosCloud && !w.cloud {
			t.Log("there is no KVM, and no VM under cloud-hypervisor")
			continue
		}
		must(t, w.Apply(w.ctx, restless(name)+dynamic(name, "loop", "Block", "ReadWriteOnce", "64Mi")))
		c.vms = append(c.vms, w.witness(t, name))
	}
	c.watch(t)
	for _, vm := range c.vms {
		c.rests(t, vm)
	}
	for i, r := range rounds {
		w.part(t, fmt.Sprintf("round %d", i+1), func(t *testing.T) { c.round(t, r) })
		if t.Failed() {
			return
		}
	}
	w.nothingLeft(t)
}

// restless is a VM that writes to its claim all the time.
func restless(name string) string {
	annotations := "{}"
	if name == chaosCloud {
		annotations = fmt.Sprintf("{%s: %s, %s: %s}", contract.AnnotationVMM, spec.VMMCloudHypervisor, contract.AnnotationHypervisor, spec.HypervisorKVM)
	}
	return fmt.Sprintf(`
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: %[1]s, namespace: guests}
spec:
  runStrategy: Always
  hibernateStrategy: {mode: Save, storageClassName: loop}
  template:
    metadata: {annotations: %[3]s}
    spec:
      evictionStrategy: Hibernate
      terminationGracePeriodSeconds: 0
      domain:
        memory: {guest: 128Mi}
        resources: {requests: {cpu: 10m}}
        devices: {disks: [{name: data, disk: {bus: virtio}}]}
        firmware:
          kernelBoot:
            kernelArgs: console=ttyS0 quiet no_timer_check vmlet.witness=/dev/vda
            container: {image: %[2]q, kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd}
      volumes:
      - {name: data, persistentVolumeClaim: {claimName: %[1]s}}
`, name, linuxImage, annotations)
}

// round has clients at their VMs, and a fault meanwhile, and judges when all is at rest again.
func (c *chaos) round(t *testing.T, r chaosRound) {
	c.fault = r.fault
	t.Cleanup(func() {
		for _, vm := range c.vms {
			if t.Failed() {
				t.Log(vm)
			}
		}
	})
	var struck string
	all := map[string]func(*testing.T){"fault": func(t *testing.T) { struck = c.strike(t, r) }}
	for i, vm := range c.vms {
		all[vm.name] = func(t *testing.T) {
			for _, d := range r.deeds[i] {
				c.does(t, vm, d)
			}
		}
	}
	t.Run("all", func(t *testing.T) {
		for name, do := range all {
			t.Run(name, func(t *testing.T) { t.Parallel(); do(t) })
		}
	})
	if t.Failed() {
		return
	}
	seen := ""
	for i, vm := range c.vms {
		c.rests(t, vm)
		for _, fault := range vm.faults() {
			t.Errorf("%s: %s", vm.name, fault)
		}
		now := vm.last()
		seen += fmt.Sprintf("; %s was %v, boot %.8s has written %d", vm.name, r.deeds[i], now.Boot, now.Count)
		vm.note(chaosEvent{whole: "the round is over"})
	}
	t.Logf("%s%s", struck, seen)
}

// strike makes the round's fault, and takes it back.
func (c *chaos) strike(t *testing.T, r chaosRound) string {
	time.Sleep(r.after) // the clients are at it
	what, mend := chaosFaults[r.fault](t, c, r)
	if mend == nil {
		return fmt.Sprintf("after %v %s", r.after, what)
	}
	time.Sleep(r.lasts)
	must(t, mend())
	return fmt.Sprintf("after %v for %v %s", r.after, r.lasts, what)
}

// does does something with a VM, and has it run afterwards.
func (c *chaos) does(t *testing.T, vm *witnessed, what deed) {
	switch what {
	case awaited:
		c.becomes(t, vm, kubevirtv1.StatusRunning)
	case restarted:
		vm.note(chaosEvent{ends: "a client stops it"})
		c.want(t, vm, kubevirtv1.RunStrategyHalted)
		c.becomes(t, vm, kubevirtv1.StatusStopped, kubevirtv1.StatusHibernated) // if it was before, and was not yet resumed
	case hibernated:
		c.want(t, vm, kubevirtv1.RunStrategyHibernate)
		// Stopped: it has crashed before it was saved.
		now := c.becomes(t, vm, kubevirtv1.StatusHibernated, kubevirtv1.StatusStopped)
		if now.Status.PrintableStatus == kubevirtv1.StatusHibernated && !hasLostMemory(now) {
			vm.note(chaosEvent{whole: "it is Hibernated"})
		}
	case moved:
		c.withPod(t, vm, c.evict)
	case drained:
		c.drains(t)
	case forced:
		vm.note(chaosEvent{ends: "a client deletes its pod by force"})
		c.withPod(t, vm, func(ctx context.Context, pod *corev1.Pod) error {
			return c.api.Delete(ctx, pod, client.GracePeriodSeconds(0))
		})
	case recreated:
		vm.note(chaosEvent{ends: "a client deletes it"})
		c.deleted(t, vm)
		c.try(t, "creating "+vm.name, func(ctx context.Context) error { return c.Apply(ctx, restless(vm.name)) })
	}
	c.want(t, vm, kubevirtv1.RunStrategyAlways)
}

// try does something until there is no error.
func (c *chaos) try(t *testing.T, what string, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := suites.Wait(c.ctx, t, chaosPatience)
	defer cancel()
	for {
		err := do(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v: it stayed so: %v", what, err, context.Cause(ctx))
		case <-c.Broken().Done():
			t.Fatalf("%s: the cluster has broken: %v", what, context.Cause(c.Broken()))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (c *chaos) get(ctx context.Context, vm *witnessed) (*kubevirtv1.VirtualMachine, error) {
	now := new(kubevirtv1.VirtualMachine)
	return now, c.api.Get(ctx, types.NamespacedName{Namespace: guests, Name: vm.name}, now)
}

// change patches the VM as soon as there is somebody who admits that.
func (c *chaos) change(t *testing.T, vm *witnessed, change func(*kubevirtv1.VirtualMachine)) {
	t.Helper()
	c.try(t, "changing "+vm.name, func(ctx context.Context) error {
		now, err := c.get(ctx, vm)
		if err != nil {
			return err
		}
		patch := client.MergeFrom(now.DeepCopy())
		change(now)
		return c.api.Patch(ctx, now, patch)
	})
}

func (c *chaos) want(t *testing.T, vm *witnessed, strategy kubevirtv1.RunStrategy) {
	t.Helper()
	c.change(t, vm, func(now *kubevirtv1.VirtualMachine) { now.Spec.RunStrategy = &strategy })
}

// becomes waits until the VM is said to be one of these. Unless it runs nothing may have its disk then.
func (c *chaos) becomes(t *testing.T, vm *witnessed, states ...kubevirtv1.PrintableStatus) (now *kubevirtv1.VirtualMachine) {
	t.Helper()
	c.try(t, fmt.Sprintf("%s is to be %v", vm.name, states), func(ctx context.Context) (err error) {
		if now, err = c.get(ctx, vm); err != nil {
			return err
		}
		if !current(now) || !slices.Contains(states, now.Status.PrintableStatus) {
			c.bootsLost(t, vm, now)
			return errors.New(text(now))
		}
		return nil
	})
	if now.Status.PrintableStatus != kubevirtv1.StatusRunning {
		c.idle(t, vm, string(now.Status.PrintableStatus))
	}
	return now
}

// current: the VM's status is of its spec as it is now.
func current(vm *kubevirtv1.VirtualMachine) bool { return vm.Status.DesiredGeneration == vm.Generation }

func (c *chaos) idle(t *testing.T, vm *witnessed, state string) {
	t.Helper()
	if pids := writersOf(c.runningVMMs(), vm.disk); len(pids) > 0 {
		t.Errorf("%s is %s, and the processes %v may write to its disk", vm.name, state, pids)
	}
}

// deleted deletes the VM, and waits until it is gone.
func (c *chaos) deleted(t *testing.T, vm *witnessed) {
	t.Helper()
	c.try(t, "deleting "+vm.name, func(ctx context.Context) error {
		now, err := c.get(ctx, vm)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil && now.DeletionTimestamp == nil {
			err = c.api.Delete(ctx, now)
		}
		return cmp.Or(err, fmt.Errorf("it is still there: %s", text(now)))
	})
	c.idle(t, vm, "deleted")
}

// evict asks the VM's pod to go, as kubectl vmlet move and kubectl drain do.
func (c *chaos) evict(ctx context.Context, pod *corev1.Pod) error {
	err := c.api.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{})
	if apierrors.IsTooManyRequests(err) { // it is saved first
		return nil
	}
	return err
}

// withPod does something to the VM's pod, if it has one.
func (c *chaos) withPod(t *testing.T, vm *witnessed, do func(context.Context, *corev1.Pod) error) {
	t.Helper()
	c.try(t, "doing something to the pod of "+vm.name, func(ctx context.Context) error {
		vmi := new(kubevirtv1.VirtualMachineInstance)
		if err := c.api.Get(ctx, types.NamespacedName{Namespace: guests, Name: vm.name}, vmi); err != nil {
			return client.IgnoreNotFound(err)
		}
		pod, err := c.launcher(ctx, vmi)
		if pod == nil {
			return err
		}
		return client.IgnoreNotFound(do(ctx, pod))
	})
}

// launcher is an instance's pod; nil: there is none.
func (c *chaos) launcher(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) (*corev1.Pod, error) {
	var pods corev1.PodList
	err := c.api.List(ctx, &pods, client.InNamespace(guests), client.MatchingLabels{contract.LabelCreatedBy: string(vmi.UID)})
	if err != nil || len(pods.Items) == 0 {
		return nil, err
	}
	return &pods.Items[0], nil
}

// drains drains the second node, and has it take pods again.
func (c *chaos) drains(t *testing.T) {
	t.Helper()
	c.try(t, "draining "+c.second.Name(), func(ctx context.Context) error { return c.second.Drain(ctx) })
	c.try(t, "uncordoning "+c.second.Name(), func(ctx context.Context) error { return c.second.Uncordon(ctx) })
}

// rests waits until the VM runs, by all who may say so, and its guest writes.
func (c *chaos) rests(t *testing.T, vm *witnessed) {
	t.Helper()
	before := vm.last()
	c.try(t, vm.name+" is to run", func(ctx context.Context) error {
		now, err := c.get(ctx, vm)
		if err != nil {
			return err
		}
		if !current(now) || now.Status.PrintableStatus != kubevirtv1.StatusRunning {
			c.bootsLost(t, vm, now)
			return errors.New(text(now))
		}
		if pids := writersOf(c.runningVMMs(), vm.disk); len(pids) != 1 {
			return fmt.Errorf("the processes %v may write to its disk, want one", pids)
		}
		if last := vm.last(); last.Count < before.Count+3 {
			return fmt.Errorf("the guest has written %+v, and before %+v", last, before)
		}
		if now.Spec.StartStrategy != nil {
			c.change(t, vm, func(now *kubevirtv1.VirtualMachine) { now.Spec.StartStrategy = nil })
		}
		return nil
	})
}

// hasLostMemory: the image of a VM that was hibernated is used or gone, and its user has to decide.
func hasLostMemory(vm *kubevirtv1.VirtualMachine) bool {
	r := vm.Status.ResumeStatus
	return r != nil && r.Phase == kubevirtv1.ResumeFailed && r.RetryTimestamp == nil
}

// bootsLost has a VM boot whose memory is lost. The judge knows whether it may be.
func (c *chaos) bootsLost(t *testing.T, vm *witnessed, now *kubevirtv1.VirtualMachine) {
	t.Helper()
	if !hasLostMemory(now) || now.Spec.StartStrategy != nil || *now.Spec.RunStrategy != kubevirtv1.RunStrategyAlways {
		return
	}
	t.Logf("%s has lost its memory: %s", vm.name, now.Status.ResumeStatus.Message)
	if c.fault == apiServerFault && now.Status.ResumeStatus.Reason == contract.RestoreDiskChanged { // docs/hibernation.md has it
		vm.note(chaosEvent{ends: "the only API server has restarted, and nobody knows who has used its disk meanwhile"})
	}
	boot := kubevirtv1.StartBoot
	c.change(t, vm, func(now *kubevirtv1.VirtualMachine) { now.Spec.StartStrategy = &boot })
}
