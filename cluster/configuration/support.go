package configuration

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// Containers beside the guest's that the KubeVirt object may give other resources, as it names them.
const (
	// SupportContainerDisk are those that hand out files of container images.
	SupportContainerDisk = "container-disk"
	// SupportAttachment are those that attach a volume to a running VM's pod.
	SupportAttachment = "hotplug-disk"
)

// support reads resources of containers beside the guest's, and reports those that no pod could have.
func (c *Configuration) support(all []kubevirtv1.SupportContainerResources, faults *[]Ignored) {
	for _, s := range all {
		field := fmt.Sprintf("configuration.supportContainerResources[%.40s]", s.Type)
		if s.Type != SupportContainerDisk && s.Type != SupportAttachment {
			*faults = append(*faults, Ignored{field, otherwise})
			continue
		}
		if name := unlike(s.Resources); name != "" {
			*faults = append(*faults, Ignored{field, fmt.Sprintf("want cpu and memory above 0, and no request above its limit: %.40q is not", name)})
			continue
		}
		if c.Support == nil {
			c.Support = make(map[string]corev1.ResourceRequirements)
		}
		c.Support[s.Type] = corev1.ResourceRequirements{Requests: s.Resources.Requests.DeepCopy(), Limits: s.Resources.Limits.DeepCopy()}
	}
}

// unlike is the name of a resource that a container can't have, or have so much of; empty: none is.
func unlike(r kubevirtv1.ContainerResources) string {
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for name, q := range list {
			if name != corev1.ResourceCPU && name != corev1.ResourceMemory || q.Sign() <= 0 {
				return string(name)
			}
		}
	}
	for name, q := range r.Requests {
		if limit, limited := r.Limits[name]; limited && q.Cmp(limit) > 0 {
			return string(name)
		}
	}
	return ""
}
