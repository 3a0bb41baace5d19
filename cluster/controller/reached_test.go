package controller

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
)

// TestReached: the nodes are those of the volume of the claim that is attached, and only of such a one.
func TestReached(t *testing.T) {
	nodes := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}},
	}}}}
	local := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}
	local.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: nodes}
	anywhere := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}
	for name, c := range map[string]struct {
		attached bool
		volume   string
		objects  []client.Object
		want     *corev1.NodeSelector
		fails    bool
	}{
		"mounted":   {false, "pv-1", []client.Object{local}, nil, false},
		"local":     {true, "pv-1", []client.Object{local}, nodes, false},
		"anywhere":  {true, "pv-1", []client.Object{anywhere}, nil, false},
		"not bound": {true, "", nil, nil, true},
		"gone":      {true, "pv-1", nil, nil, true},
		"another's": {true, "pv-2", []client.Object{local}, nil, true},
	} {
		in := convert.Input{Instance: &kubevirtv1.VirtualMachineInstance{}, Claims: map[string]*corev1.PersistentVolumeClaim{"memory": {Spec: corev1.PersistentVolumeClaimSpec{VolumeName: c.volume}}}}
		in.Instance.Spec.StartStrategy = new(kubevirtv1.StartRestore)
		in.Instance.Spec.RestoreFrom = &kubevirtv1.SavedImage{ClaimName: "memory", Attached: c.attached}
		err := reached(t.Context(), fake.NewClientBuilder().WithObjects(c.objects...).Build(), &in)
		if (err != nil) != c.fails {
			t.Errorf("%s: error %v, want one: %v", name, err, c.fails)
		}
		if !reflect.DeepEqual(in.ImageNodes, c.want) {
			t.Errorf("%s: nodes %v, want %v", name, in.ImageNodes, c.want)
		}
	}
}
