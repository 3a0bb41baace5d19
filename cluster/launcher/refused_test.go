package launcher_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/cluster/launcher"
)

func parsed[T any](t *testing.T, text string) (value T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

// TestSupportResources: the containers beside the guest's have requests within a small ratio of their limits,
// and what the KubeVirt object says of their kind.
func TestSupportResources(t *testing.T) {
	for _, c := range []struct {
		name, instance, support string
		requests, limits        string
	}{
		{"shipped", "{}", "{}", "{cpu: 1m, memory: 16Mi}", "{memory: 32Mi}"},
		{"limited", "{limits: {cpu: 1}, requests: {cpu: 500m}}", "{}", "{cpu: 50m, memory: 16Mi}", "{cpu: 100m, memory: 32Mi}"},
		{"guaranteed", "{limits: {cpu: 1, memory: 1Gi}}", "{}", "{cpu: 100m, memory: 32Mi}", "{cpu: 100m, memory: 32Mi}"},
		{"configured", "{}", "{requests: {cpu: 5m, memory: 20M}, limits: {cpu: 10m, memory: 40M}}", "{cpu: 5m, memory: 20M}", "{cpu: 10m, memory: 40M}"},
		{"a limit below the request", "{limits: {cpu: 1}, requests: {cpu: 500m}}", "{limits: {cpu: 20m}}", "{cpu: 20m, memory: 16Mi}", "{cpu: 20m, memory: 32Mi}"},
		{"a request above the limit", "{}", "{requests: {memory: 64Mi}}", "{cpu: 1m, memory: 64Mi}", "{memory: 64Mi}"},
	} {
		in := changed(t, "domain: {resources: "+c.instance+", devices: {disks: [{name: root, disk: {}}]}}\nvolumes: [{name: root, containerDisk: {image: a}}]")
		own := parsed[corev1.ResourceRequirements](t, c.support)
		in.Configuration.Support = map[string]corev1.ResourceRequirements{"container-disk": own, "hotplug-disk": own}
		want := corev1.ResourceRequirements{Requests: parsed[corev1.ResourceList](t, c.requests), Limits: parsed[corev1.ResourceList](t, c.limits)}
		pod, err := launcher.Pod(in)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for _, container := range pod.Spec.InitContainers {
			if !equality.Semantic.DeepEqual(container.Resources, want) {
				t.Errorf("%s: %s has %v, want %v", c.name, container.Name, container.Resources, want)
			}
		}
		if c.name == "guaranteed" {
			continue // an attachment's quality of service is its own
		}
		if got := launcher.Attachment(in.Instance, pod, "a", in.Configuration).Spec.Containers[0].Resources; !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s: an attachment has %v, want %v", c.name, got, want)
		}
	}
}

// TestRefused: of what a LimitRange refuses, which the API server says of no container, the container is
// named, and who can change it.
func TestRefused(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	container := func(name string, requests, limits corev1.ResourceList) corev1.Container {
		return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
	}
	p := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{
			container("programs", list("1m", "16Mi"), list("100m", "32Mi")), container("volumeroot", list("1m", "16Mi"), list("100m", "32Mi")),
			container("free", nil, nil),
		},
		Containers: []corev1.Container{container("compute", list("3", "1Gi"), list("5", "3Gi"))},
	}}
	importer := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{container("importer", list("500m", "256Mi"), list("1", "512Mi"))}}}
	for _, c := range []struct {
		pod        *corev1.Pod
		said, want string
	}{
		{p, "[memory max limit to request ratio per Container is 2, but provided ratio is 3.000000, cpu max limit to request ratio per Container is 4, but provided ratio is 100.000000]",
			"[memory max limit to request ratio per Container is 2, but provided ratio is 3.000000 (container compute: see domain.resources of the VM), " +
				"cpu max limit to request ratio per Container is 4, but provided ratio is 100.000000 (container programs, volumeroot: see supportContainerResources of the KubeVirt object)]"},
		{p, "minimum memory usage per Container is 64Mi, but request is 16Mi", "minimum memory usage per Container is 64Mi, but request is 16Mi (container programs, volumeroot: see supportContainerResources of the KubeVirt object)"},
		{p, "maximum cpu usage per Container is 2, but limit is 5.", "maximum cpu usage per Container is 2, but limit is 5. (container compute: see domain.resources of the VM)"},
		{importer, "memory max limit to request ratio per Container is 1, but provided ratio is 2.000000", "memory max limit to request ratio per Container is 1, but provided ratio is 2.000000 (container importer, whose resources are fixed)"},
		{p, "cpu max limit to request ratio per Container is 4, but provided ratio is 7.000000", "cpu max limit to request ratio per Container is 4, but provided ratio is 7.000000"},
		{p, "maximum cpu usage per Pod is 2, but limit is 5", "maximum cpu usage per Pod is 2, but limit is 5"},
	} {
		is := errors.New(c.said)
		got := launcher.Refused(is, c.pod)
		if got.Error() != c.want || !errors.Is(got, is) {
			t.Errorf("got  %v\nwant %s", got, c.want)
		}
	}
	if launcher.Refused(nil, p) != nil {
		t.Error("a pod that was made is refused")
	}
}
