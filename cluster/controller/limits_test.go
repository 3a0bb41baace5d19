package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
)

// TestLimited: quotas on limits, and the namespaces that the configuration selects.
func TestLimited(t *testing.T) {
	quota := func(namespace string, name corev1.ResourceName) client.Object {
		q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: string(name)}}
		q.Spec.Hard = corev1.ResourceList{name: resource.MustParse("4")}
		return q
	}
	for name, c := range map[string]struct {
		objects     []client.Object
		selector    map[string]string
		cpu, memory bool
	}{
		"none":                     {nil, nil, false, false},
		"of requests":              {[]client.Object{quota("team", corev1.ResourceRequestsCPU)}, nil, false, false},
		"of another namespace":     {[]client.Object{quota("other", corev1.ResourceLimitsCPU)}, nil, false, false},
		"of memory":                {[]client.Object{quota("team", corev1.ResourceLimitsMemory)}, nil, false, true},
		"of both":                  {[]client.Object{quota("team", corev1.ResourceLimitsMemory), quota("team", corev1.ResourceLimitsCPU)}, nil, true, true},
		"selected":                 {nil, map[string]string{"limited": "yes"}, true, false},
		"not selected":             {nil, map[string]string{"limited": "no"}, false, false},
		"all selected, and memory": {[]client.Object{quota("team", corev1.ResourceLimitsMemory)}, map[string]string{}, true, true},
	} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"limited": "yes"}}}
		server := fake.NewClientBuilder().WithObjects(append(c.objects, namespace)...).Build()
		in := convert.Input{Instance: &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "team"}}}
		if c.selector != nil {
			in.Configuration.LimitedNamespaces = &metav1.LabelSelector{MatchLabels: c.selector}
		}
		if err := limited(t.Context(), server, server, &in); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if in.LimitCPU != c.cpu {
			t.Errorf("%s: a limit of CPUs is wanted: %v, want %v", name, in.LimitCPU, c.cpu)
		}
		if in.LimitMemory != c.memory {
			t.Errorf("%s: a limit of memory is wanted: %v, want %v", name, in.LimitMemory, c.memory)
		}
	}
}
