package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// TestPools: a pool's VMs count as they start and end, those of others don't, and a pool that is gone leaves nothing.
func TestPools(t *testing.T) {
	leads := true
	p := NewPools(func() bool { return leads })
	vm := func(uid, pool string, created bool) *kubevirtv1.VirtualMachine {
		vm := &kubevirtv1.VirtualMachine{}
		vm.Namespace, vm.UID, vm.Status.Created = "space", types.UID(uid), created
		if pool != "" {
			vm.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachinePool", Name: pool, Controller: new(true)}}
		}
		return vm
	}
	p.Changed(vm("a", "web", false), vm("a", "web", true))
	p.Changed(vm("a", "web", true), vm("a", "web", true))
	p.Changed(vm("a", "web", true), vm("a", "web", false))
	p.Changed(vm("b", "web", true), nil)
	p.Changed(vm("c", "", false), vm("c", "", true))
	leads = false
	p.Changed(vm("d", "web", false), vm("d", "web", true))
	leads = true
	want := `
# HELP kubevirt_vmpool_vms_started_total Starts of VirtualMachines of a VirtualMachinePool. The leading vmlet-controller counts them.
# TYPE kubevirt_vmpool_vms_started_total counter
kubevirt_vmpool_vms_started_total{namespace="space",pool="web"} 1
# HELP kubevirt_vmpool_vms_stopped_total Ends of VirtualMachines of a VirtualMachinePool that ran. The leading vmlet-controller counts them.
# TYPE kubevirt_vmpool_vms_stopped_total counter
kubevirt_vmpool_vms_stopped_total{namespace="space",pool="web"} 2
`
	if err := testutil.CollectAndCompare(p, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	p.Gone("space", "web")
	if n := testutil.CollectAndCount(p); n != 0 {
		t.Errorf("%d series are left of a pool that is gone", n)
	}
}
