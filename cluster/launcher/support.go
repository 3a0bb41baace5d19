package launcher

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vmlet/vmlet/cluster/configuration"
)

// What a container takes that hands out a disk's descriptor, or a volume's, and waits. Requests are half of
// limits, as a namespace may bound their ratio. Without a limit it takes next to no CPU.
const (
	handoutCPU         = "1m"
	handoutCPULimited  = "50m"
	handoutCPULimit    = "100m"
	handoutMemory      = "16Mi"
	handoutMemoryLimit = "32Mi"
)

// handoutResources are those of a container that hands out, with what the KubeVirt object says of its kind.
func handoutResources(c configuration.Configuration, kind string, limitCPU bool) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(handoutCPU), corev1.ResourceMemory: resource.MustParse(handoutMemory)},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(handoutMemoryLimit)},
	}
	if limitCPU {
		r.Requests[corev1.ResourceCPU], r.Limits[corev1.ResourceCPU] = resource.MustParse(handoutCPULimited), resource.MustParse(handoutCPULimit)
	}
	own := c.Support[kind]
	for name, q := range own.Limits {
		r.Limits[name] = q.DeepCopy()
		if request := r.Requests[name]; request.Cmp(q) > 0 {
			r.Requests[name] = q.DeepCopy()
		}
	}
	for name, q := range own.Requests {
		r.Requests[name] = q.DeepCopy()
		if limit, limited := r.Limits[name]; limited && q.Cmp(limit) > 0 {
			r.Limits[name] = q.DeepCopy()
		}
	}
	return r
}
