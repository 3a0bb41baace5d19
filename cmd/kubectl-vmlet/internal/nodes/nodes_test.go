package nodes_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmlet/vmlet/cmd/kubectl-vmlet/internal/nodes"
)

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func node(name string, labels map[string]string, conditions ...corev1.NodeCondition) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Status: corev1.NodeStatus{Conditions: conditions}}
}

func lease(name, namespace string, ago time.Duration) *coordinationv1.Lease {
	seconds, renewed := int32(120), metav1.NewMicroTime(now.Add(-ago))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &renewed, LeaseDurationSeconds: &seconds},
	}
}

func works() map[string]string {
	return map[string]string{
		"kubevirt.io/schedulable": "true", "node.vmlet.io/hypervisor": "kvm", "hypervisor.node.vmlet.io/kvm": "works", "hypervisor.node.vmlet.io/emulation": "works",
		"node.vmlet.io/vmm": "qemu", "vmm.node.vmlet.io/qemu": "10.0.2", "vmm.node.vmlet.io/cloud-hypervisor": "53.0", "node.vmlet.io/max-vcpus": "255",
	}
}

func cluster(t *testing.T, fails interceptor.Funcs, objects ...client.Object) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(fails).WithObjects(objects...).Build()
}

var (
	ready    = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	notReady = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Message: "container runtime is down"}
	pressure = corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue, Reason: "KubeletHasInsufficientMemory"}
)

// TestTable compares the whole of what is printed.
func TestTable(t *testing.T) {
	broken := works()
	broken["kubevirt.io/schedulable"] = "false"
	delete(broken, "hypervisor.node.vmlet.io/kvm")
	cordoned := node("n5", works(), ready)
	cordoned.Spec.Unschedulable = true
	from := cluster(t, interceptor.Funcs{},
		node("n1", works(), ready), lease("n1", "vmlet", 20*time.Second),
		node("n2", broken, ready), lease("n2", "vmlet", 20*time.Second),
		node("n3", nil, ready), lease("n3", "elsewhere", time.Second),
		node("n4", works(), notReady, pressure), lease("n4", "vmlet", 121*time.Second),
		cordoned, lease("n5", "vmlet", 120*time.Second),
	)
	rows, unread, err := nodes.List(t.Context(), from, "vmlet", now)
	if err != nil || unread != nil {
		t.Fatal(err, unread)
	}
	var got strings.Builder
	if err := nodes.Print(&got, rows); err != nil {
		t.Fatal(err)
	}
	const want = `NODE   VMS   HYPERVISORS                  VMMS                                MAX VCPUS   AGENT
n1     yes   kvm works, emulation works   qemu 10.0.2, cloud-hypervisor 53.0   255         heard 20s ago
n2     no    emulation works              qemu 10.0.2, cloud-hypervisor 53.0   255         heard 20s ago
n3     no    -                            -                                    -           none
n4     no    kvm works, emulation works   qemu 10.0.2, cloud-hypervisor 53.0   255         lost 2m1s ago
n5     no    kvm works, emulation works   qemu 10.0.2, cloud-hypervisor 53.0   255         heard 2m ago

No VM starts on n2:
  its hypervisor or VMM does not work: vmlet probe on the node says why

No VM starts on n3:
  no agent has labelled it: does vmlet's DaemonSet run there?
  its agent is not heard

No VM starts on n4:
  its agent is not heard
  it is not ready: container runtime is down
  MemoryPressure: KubeletHasInsufficientMemory

No VM starts on n5:
  it is cordoned: kubectl uncordon n5
`
	if normalised(got.String()) != normalised(want) {
		t.Errorf("got:\n%s\nwant:\n%s", &got, want)
	}
}

// TestAbilities: what guests can have on nodes, in the words of a VM's fields.
func TestAbilities(t *testing.T) {
	labels := works()
	for _, key := range []string{
		"cpu-model.node.kubevirt.io/Penryn", "cpu-model.node.kubevirt.io/Nehalem", "host-model-cpu.node.kubevirt.io/EPYC",
		"cpu-feature.node.kubevirt.io/vmx", "machine-type.node.kubevirt.io/q35",
	} {
		labels[key] = "true"
	}
	labels["cpu-model.node.kubevirt.io/Opteron_G1"] = "false"
	rows, _, err := nodes.List(t.Context(), cluster(t, interceptor.Funcs{}, node("n1", labels, ready)), "vmlet", now)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := nodes.PrintAbilities(&got, rows); err != nil {
		t.Fatal(err)
	}
	const want = `
A guest on n1 can have:
  cpu.model       Nehalem Penryn
  host-model      EPYC
  cpu.features    vmx
  machine.type    q35
  features.hyperv -
`
	if got.String() != want {
		t.Errorf("got:%s\nwant:%s", &got, want)
	}
}

// normalised leaves out how wide columns are.
func normalised(table string) string {
	var lines []string
	for line := range strings.Lines(table) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

// TestUnreadLeases: without leave to read Leases agents are unknown, which keeps no VM.
func TestUnreadLeases(t *testing.T) {
	from := cluster(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
		if _, is := list.(*coordinationv1.LeaseList); is {
			return errors.New("forbidden")
		}
		return c.List(ctx, list, o...)
	}}, node("n1", works(), ready))
	rows, unread, err := nodes.List(t.Context(), from, "vmlet", now)
	if err != nil || unread == nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v, unread %v", len(rows), err, unread)
	}
	if rows[0].Agent != "unknown" || rows[0].VMs != "yes" {
		t.Errorf("agent is %s, VMs: %s", rows[0].Agent, rows[0].VMs)
	}
}
