package view_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
)

// TestMachineOf: a machine is known by its firmware's UUID, as long as somebody has not deleted its Node; it is no other one
// after a boot, or with another system, and none is where the kubelet has no such UUID.
func TestMachineOf(t *testing.T) {
	of := func(node, uuid, id string) *kubevirtv1.NodeMachine {
		n := new(corev1.Node)
		n.UID, n.Status.NodeInfo = types.UID(node), corev1.NodeSystemInfo{SystemUUID: uuid, MachineID: id, BootID: id}
		return view.MachineOf(n)
	}
	const uuid, swapped = "4C4C4544-0042-3510-8052-B9C04F4E4D32", "44454c4c-4200-1035-8052-b9c04f4e4d32"
	first := of("n", "4C4C4544-0042", "aaaa")
	for name, c := range map[string]struct {
		before, now *kubevirtv1.NodeMachine
		replaced    bool
	}{
		"the same":                         {first, of("n", "4C4C4544-0042", "aaaa"), false},
		"with another system":              {first, of("n", "4C4C4544-0042", "bbbb"), false},
		"by another spelling":              {first, of("n", "4c4c4544-0042", "aaaa"), false},
		"in the other byte order":          {of("n", uuid, "aaaa"), of("n", swapped, "aaaa"), false},
		"noted by a controller of before":  {&kubevirtv1.NodeMachine{NodeUID: "n"}, first, false},
		"another machine":                  {first, of("n", "4C4C4544-0043", "bbbb"), true},
		"another machine of one image":     {first, of("n", "4C4C4544-0043", "aaaa"), true},
		"another machine, another Node":    {first, of("m", "4C4C4544-0043", "bbbb"), false},
		"nobody knows any more":            {first, of("n", "", "bbbb"), false},
		"nobody knew":                      {of("n", "", "aaaa"), of("n", "4C4C4544-0043", "bbbb"), false},
		"no UUID but an id of each boot":   {of("n", "aa-aa", "aaaa"), of("n", "BBBB", "bbbb"), false},
		"no UUID any more but a boot's id": {first, of("n", "bbbb", "bbbb"), false},
	} {
		if got := view.Replaces(c.now, c.before); got != c.replaced {
			t.Errorf("%s: replaced %v, want %v", name, got, c.replaced)
		}
	}
}

// TestInstanceOf: whose a pod is, and that nobody else's is taken for a VM's.
func TestInstanceOf(t *testing.T) {
	of := func(change func(*corev1.Pod)) *corev1.Pod {
		p, _ := scene.MakePod(scene.New().Instance, nil)
		change(p)
		return p
	}
	for _, test := range []struct {
		name string
		pod  *corev1.Pod
		want string
	}{
		{"its own", of(func(*corev1.Pod) {}), scene.VM},
		{"orphaned", of(func(p *corev1.Pod) { p.OwnerReferences = nil }), scene.VM},
		{"another's", of(func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" }), ""},
		{"another group's", of(func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "kubevirt.io/v2" }), ""},
		{"no launcher", of(func(p *corev1.Pod) { delete(p.Labels, contract.LabelApp) }), ""},
		{"of no instance", of(func(p *corev1.Pod) { delete(p.Labels, contract.LabelCreatedBy) }), ""},
	} {
		if got := view.InstanceOf(test.pod); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
