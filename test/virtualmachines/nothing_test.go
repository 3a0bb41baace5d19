package virtualmachines_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/test/cluster"
)

// revisions are those of a VM.
func (v *installed) revisions(t *testing.T, vm *kubevirtv1.VirtualMachine) []appsv1.ControllerRevision {
	t.Helper()
	var all appsv1.ControllerRevisionList
	must(t, v.api.List(v.ctx, &all, client.InNamespace(vm.Namespace), client.MatchingLabels{contract.LabelCreatedBy: string(vm.UID)}))
	return all.Items
}

// nothingLeft deletes all that is of VMs in the namespace, and waits until nothing is left of
// it: objects, folders on the node, the agent's knowledge.
func (v *installed) nothingLeft(t *testing.T) {
	t.Helper()
	for _, o := range []client.Object{&kubevirtv1.VirtualMachine{}, &kubevirtv1.VirtualMachineInstance{}} {
		must(t, v.api.DeleteAllOf(v.ctx, o, client.InNamespace(guests)))
	}
	v.clean(t)
}

// clean waits until nothing is left of any VM.
func (v *installed) clean(t *testing.T) {
	t.Helper()
	var left []string
	v.eventually(t, func() bool {
		left = v.objects(t)
		for _, n := range v.Nodes() {
			left = append(left, v.leftOn(t, n)...)
		}
		return len(left) == 0
	}, func() string { return fmt.Sprintf("%d things are left: %s", len(left), strings.Join(left, ", ")) })
}

// leftOn is what a node has of VMs, and of pods that are gone.
func (v *installed) leftOn(t *testing.T, n *cluster.Node) (left []string) {
	t.Helper()
	for _, vm := range v.listedOn(t, n) {
		left = append(left, "the agent's VM "+vm.GetStatus().GetPod().GetName())
	}
	folders, err := n.InNode(v.ctx, "find", "/var/lib/vmlet/vms", "/run/vmlet/vms", "-mindepth", "1")
	must(t, err)
	pods, err := n.InNode(v.ctx, "find", "/var/lib/kubelet/pods", "-mindepth", "1", "-maxdepth", "1")
	must(t, err)
	left = append(left, strings.Fields(folders)...)
	for _, folder := range strings.Fields(pods) {
		if !v.isPod(t, folder[strings.LastIndex(folder, "/")+1:]) {
			left = append(left, folder)
		}
	}
	return left
}

// objects are all of the API's that are there for the sake of VMs.
func (v *installed) objects(t *testing.T) (left []string) {
	t.Helper()
	for _, kind := range []schema.GroupVersionKind{
		{Group: kubevirtv1.Group, Version: kubevirtv1.Version, Kind: "VirtualMachine"},
		{Group: kubevirtv1.Group, Version: kubevirtv1.Version, Kind: "VirtualMachineInstance"},
		{Group: "apps", Version: "v1", Kind: "ControllerRevision"},
		{Version: "v1", Kind: "Pod"},
	} {
		var all metav1.PartialObjectMetadataList
		all.SetGroupVersionKind(kind)
		must(t, v.api.List(v.ctx, &all, client.InNamespace(guests)))
		for _, o := range all.Items {
			left = append(left, kind.Kind+" "+o.Name)
		}
	}
	return left
}

// isPod: there is a pod of that UID.
func (v *installed) isPod(t *testing.T, uid string) bool {
	t.Helper()
	var pods corev1.PodList
	must(t, v.api.List(v.ctx, &pods))
	for _, p := range pods.Items {
		if string(p.UID) == uid {
			return true
		}
	}
	return false
}
