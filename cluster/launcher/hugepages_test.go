package launcher_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/contract"
)

// TestHugePages: the guest's memory is in pages that the pod requests, and the pod's ordinary memory is
// what the VM costs beside it, whatever the instance requests.
func TestHugePages(t *testing.T) {
	for name, resources := range map[string]string{
		"nothing said": "{}", "the guest's": "{requests: {memory: 64Mi}, limits: {memory: 64Mi}}",
	} {
		in := changed(t, "domain: {memory: {guest: 64Mi, hugepages: {pageSize: 2Mi}}, devices: {}, resources: "+resources+"}")
		p := pod(t, in)
		c := p.Spec.Containers[0]
		overhead, err := launcher.Overhead(in)
		if err != nil {
			t.Fatal(err)
		}
		pages, limit := c.Resources.Requests["hugepages-2Mi"], c.Resources.Limits["hugepages-2Mi"]
		if pages.Value() != 64<<20 || limit.Value() != 64<<20 || c.Resources.Requests.Memory().Value() != overhead {
			t.Errorf("%s: it requests %v, with limits %v; the overhead is %d", name, c.Resources.Requests, c.Resources.Limits, overhead)
		}
		at := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == contract.HugePagesFolder })
		if at < 0 || !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == c.VolumeMounts[at].Name && v.EmptyDir != nil && v.EmptyDir.Medium == "HugePages-2Mi"
		}) {
			t.Errorf("%s: it mounts %v", name, c.VolumeMounts)
		}
	}
	for _, m := range pod(t, changed(t, "domain: {devices: {}}")).Spec.Containers[0].VolumeMounts {
		if m.MountPath == contract.HugePagesFolder {
			t.Error("a guest without huge pages has their folder")
		}
	}
}
