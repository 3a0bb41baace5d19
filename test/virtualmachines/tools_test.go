package virtualmachines_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/suites"
)

// patience bounds every wait, see suites.Patience; nothing takes as long unless it is broken.
const patience = 2 * time.Minute

// machine is a VirtualMachine that boots a kernel. It is killed when it is stopped.
func machine(t *testing.T, name string, strategy kubevirtv1.RunStrategy, kernel string) *kubevirtv1.VirtualMachine {
	t.Helper()
	vm := &kubevirtv1.VirtualMachine{}
	vm.Namespace, vm.Name = guests, name
	vm.Spec.RunStrategy = &strategy
	vm.Spec.Template = &kubevirtv1.VirtualMachineInstanceTemplateSpec{Spec: instance(t, name, kernel).Spec}
	return vm
}

// instance is a VirtualMachineInstance that boots a kernel, and is killed when it is stopped.
func instance(t *testing.T, name, kernel string) *kubevirtv1.VirtualMachineInstance {
	t.Helper()
	vmi := &kubevirtv1.VirtualMachineInstance{}
	vmi.Namespace, vmi.Name = guests, name
	limits := "{cpu: 400m}" // a guest that counts would take all of a processor
	if kernel == idle {
		limits = "{}"
	}
	must(t, yaml.UnmarshalStrict(fmt.Appendf(nil, `
terminationGracePeriodSeconds: 0
domain:
  devices: {}
  memory: {guest: 32Mi}
  resources: {requests: {cpu: 10m}, limits: %s}
  firmware: {kernelBoot: {container: {image: %q, kernelPath: /boot/%s}}}
`, limits, kernelImage, kernel), &vmi.Spec))
	return vmi
}

func (v *installed) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		must(t, v.api.Create(v.ctx, o))
	}
}

// remove deletes objects of their names, and waits for none.
func (v *installed) remove(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		must(t, client.IgnoreNotFound(v.api.Delete(v.ctx, o)))
	}
}

// vm is a VirtualMachine as it is now; nil: there is none.
func (v *installed) vm(t *testing.T, name string) *kubevirtv1.VirtualMachine {
	t.Helper()
	return get(t, v, guests, name, new(kubevirtv1.VirtualMachine))
}

// vmi is a VirtualMachineInstance as it is now; nil: there is none.
func (v *installed) vmi(t *testing.T, name string) *kubevirtv1.VirtualMachineInstance {
	t.Helper()
	return get(t, v, guests, name, new(kubevirtv1.VirtualMachineInstance))
}

func get[T client.Object](t *testing.T, v *installed, namespace, name string, into T) T {
	t.Helper()
	err := v.api.Get(v.ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		var none T
		return none
	}
	must(t, err)
	return into
}

// printed waits until a VirtualMachine's printableStatus is what it should be.
func (v *installed) printed(t *testing.T, name string, want kubevirtv1.PrintableStatus) *kubevirtv1.VirtualMachine {
	t.Helper()
	var vm *kubevirtv1.VirtualMachine
	v.eventually(t, func() bool {
		vm = v.vm(t, name)
		return vm != nil && vm.Status.PrintableStatus == want
	}, func() string { return fmt.Sprintf("VM %s is not %s: %s", name, want, text(vm)) })
	return vm
}

// phase waits until a VirtualMachineInstance is in a phase.
func (v *installed) phase(t *testing.T, name string, want kubevirtv1.Phase) *kubevirtv1.VirtualMachineInstance {
	t.Helper()
	return v.until(t, name, string(want), func(vmi *kubevirtv1.VirtualMachineInstance) bool { return vmi.Status.Phase == want })
}

// until waits until something is so of a VirtualMachineInstance.
func (v *installed) until(t *testing.T, name, what string, so func(*kubevirtv1.VirtualMachineInstance) bool) *kubevirtv1.VirtualMachineInstance {
	t.Helper()
	var vmi *kubevirtv1.VirtualMachineInstance
	v.eventually(t, func() bool {
		vmi = v.vmi(t, name)
		return vmi != nil && so(vmi)
	}, func() string { return fmt.Sprintf("VMI %s is not %s: %s", name, what, text(vmi)) })
	return vmi
}

// another waits until a VM has another instance than it had, which runs.
func (v *installed) another(t *testing.T, before *kubevirtv1.VirtualMachineInstance) *kubevirtv1.VirtualMachineInstance {
	t.Helper()
	return v.until(t, before.Name, "another one that runs", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return vmi.UID != before.UID && vmi.Status.Phase == kubevirtv1.PhaseRunning
	})
}

// noInstance waits until there is no VirtualMachineInstance of a name.
func (v *installed) noInstance(t *testing.T, name string) {
	t.Helper()
	var vmi *kubevirtv1.VirtualMachineInstance
	v.eventually(t, func() bool {
		vmi = v.vmi(t, name)
		return vmi == nil
	}, func() string { return fmt.Sprintf("VMI %s is still there: %s", name, text(vmi)) })
}

// noMachine waits until there is no VirtualMachine of a name.
func (v *installed) noMachine(t *testing.T, name string) {
	t.Helper()
	var vm *kubevirtv1.VirtualMachine
	v.eventually(t, func() bool {
		vm = v.vm(t, name)
		return vm == nil
	}, func() string { return fmt.Sprintf("VM %s is still there: %s", name, text(vm)) })
}

// change patches a VirtualMachine as a user does.
func (v *installed) change(t *testing.T, name string, change func(*kubevirtv1.VirtualMachine)) {
	t.Helper()
	vm := v.vm(t, name)
	patch := client.MergeFrom(vm.DeepCopy())
	change(vm)
	must(t, v.api.Patch(v.ctx, vm, patch))
}

// podOf is the pod of an instance; nil: there is none.
func (v *installed) podOf(t *testing.T, vmi *kubevirtv1.VirtualMachineInstance) *corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	must(t, v.api.List(v.ctx, &pods, client.InNamespace(vmi.Namespace), client.MatchingLabels{contract.LabelCreatedBy: string(vmi.UID)}))
	switch len(pods.Items) {
	case 0:
		return nil
	case 1:
		return &pods.Items[0]
	}
	t.Fatalf("VMI %s has %d pods, want one", vmi.Name, len(pods.Items))
	return nil
}

// condition of a list; nil: there is none of the type.
func condition(all []kubevirtv1.Condition, kind string) *kubevirtv1.Condition {
	i := slices.IndexFunc(all, func(c kubevirtv1.Condition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &all[i]
}

func isTrue(c *kubevirtv1.Condition) bool { return c != nil && c.Status == "True" }

// listed are the VMs that the first node's agent has, by their pods' UIDs.
func (v *installed) listed(t *testing.T) map[types.UID]*nodev1.VirtualMachine {
	t.Helper()
	return v.listedOn(t, v.Node)
}

func (v *installed) listedOn(t *testing.T, n *cluster.Node) map[types.UID]*nodev1.VirtualMachine {
	t.Helper()
	api := v.agentOn(t, n)
	ctx, cancel := suites.Wait(v.ctx, t, patience)
	defer cancel()
	list, err := api.ListVMs(ctx, &nodev1.ListVMsRequest{}, grpc.WaitForReady(true))
	must(t, err)
	all := make(map[types.UID]*nodev1.VirtualMachine)
	for _, vm := range list.GetVms() {
		all[types.UID(vm.GetStatus().GetPod().GetUid())] = vm
	}
	return all
}

// agent is a client of the first node's.
func (v *installed) agent(t *testing.T) nodev1.NodeServiceClient {
	t.Helper()
	return v.agentOn(t, v.Node)
}

// agentOn is a client of a node's agent, whichever it is: its socket is the node's.
func (v *installed) agentOn(t *testing.T, n *cluster.Node) nodev1.NodeServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+n.Path("/run/vmlet/vmlet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return nodev1.NewNodeServiceClient(conn)
}

// nodeOf is the node that a pod is on.
func (v *installed) nodeOf(t *testing.T, pod *corev1.Pod) *cluster.Node {
	t.Helper()
	for _, n := range v.Nodes() {
		if n.Name() == pod.Spec.NodeName {
			return n
		}
	}
	t.Fatalf("pod %s is on the node %q, which the cluster does not have", pod.Name, pod.Spec.NodeName)
	return nil
}

// vmm is the process that runs an instance, by the agent's word.
func (v *installed) vmm(t *testing.T, vmi *kubevirtv1.VirtualMachineInstance) int64 {
	t.Helper()
	var pid int64
	v.eventually(t, func() bool {
		pod := v.podOf(t, vmi)
		if pod == nil || pod.Spec.NodeName == "" {
			return false
		}
		status := v.listedOn(t, v.nodeOf(t, pod))[pod.UID].GetStatus()
		pid = status.GetProcess().GetVmmPid()
		return pid != 0 && status.GetState() == nodev1.State_STATE_RUNNING
	}, func() string { return fmt.Sprintf("the agent says of no process that it runs VMI %s", vmi.Name) })
	return pid
}

// eventually waits until something is so; complaint says what is instead.
func (v *installed) eventually(t *testing.T, so func() bool, complaint func() string) {
	t.Helper()
	ctx, cancel := suites.Wait(v.ctx, t, patience)
	defer cancel()
	for wait := 50 * time.Millisecond; !so(); wait = min(wait*3/2, time.Second/2) {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: it stayed so: %v", complaint(), ctx.Err())
		case <-v.Broken().Done():
			t.Fatal("the cluster has broken")
		case <-time.After(wait):
		}
	}
}

// kubectl ends what waits for something that does not come.
func (v *installed) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := suites.Wait(v.ctx, t, patience)
	defer cancel()
	out, err := v.Kubectl(ctx, args...)
	must(t, err)
	return strings.TrimSpace(out)
}

// text is an object's status for a complaint.
func text(o client.Object) string {
	b, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
